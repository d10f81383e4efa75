//! Clusters of Twitter's caches, as the table beside their traces describes them.
//!
//! github.com/twitter/cache-trace, stat/2020Mar.md, with Yang, Yue, Rashmi, "A large scale analysis
//! of hundreds of in-memory cache clusters at Twitter", OSDI 2020. The table has mean sizes of keys
//! and values, so here all keys of a cluster have one size, and so do all values. It lists the
//! common lifetimes. Here the middle one stands for many that are close together, and none is
//! longer than 30 days, above which the protocol reads numbers as dates. `cas` and `prepend` count
//! as sets here. Clusters 43 and 46 have no exponent in the table, and 0.99 here; cluster 5 has no
//! figures at all.

use super::Workload;
use super::sampler::Popularity;
use super::sizes::Sizes;

/// Cluster, bytes of a key, bytes of a value, operations in percent, Zipf's exponent, lifetimes in
/// seconds (with their shares in percent).
const CLUSTERS: &str = "\
1 80 267 get=99 2.6774 240
2 21 68 get=100 1.4908 345600=59,172800=41
3 19 120 get=99 1.6414 604800
4 67 2439 get=93,set=7 1.1004 60=39,300=24,3600=13,600=12,14400=9,86400=3
6 44 252 get=98,set=2 1.882 550
7 17 1936 get=82,set=18 1.0666 6480
8 23 9497 set=50,get=50 1.7366 1380
9 32 39 get=99 1.6796 7200
10 22 2333 add=50,get=50 0 7200
11 24 170 get=96,add=2,gets=1,set=1 1.4891 432000=97,20=3
12 44 1030 set=80,get=20 0.3048 300
13 44 4266 get=38,set=62 0.4565 300
14 96 414 get=65,delete=22,set=13 1.2959 86400
15 18 102 set=100 0.0242 30
16 18 115 get=93,set=4,add=1 1.7862 3600
17 19 212 get=99 2.1106 432000
18 18 37 get=96,add=1,gets=1,set=1 2.0994 43200
19 42 101 get=75,set=25 0.735 25200
20 26 55 get=96,add=3 1.3699 432000
21 25 1 add=100 0.0521 7920=62,10=23,900=14
22 54 4 get=72,incr=18,set=10 0.7624 86400=85,3600=11,1800=3
23 35 224 set=31,get=36,incr=30,delete=2 0.274 120=93,2700=5,5=3
24 32 699 get=99 1.3726 1209600=71,60=19,2592000=3,86400=2,3600=2
25 49 28 get=95,add=2,gets=2,set=2 0.9929 2592000
26 122 1745 get=71,set=29 0.6299 60=67,120=10,360=9,600=6,660=3,180=2
27 66 8 get=85,set=15 1.065 2592000=28,86400=25,3600=20,14400=18,21600=6,43200=2
28 45 85 get=91,set=3,add=3 1.503 10800=56,103680=43
29 36 799 get=86,set=13 1.2323 3600=67,7200=33
30 22 689 get=99 1.4259 43200
31 41 15 set=94,get=6 0 60
32 41 138 set=98,get=2 0 60
33 24 1118 get=99,set=1 1.354 39600
34 33 322 get=94,set=6 1.1401 38160
35 19 1796 get=96,set=4 0 60
36 23 78 get=93,add=4,gets=1,set=1 1.2169 2592000
37 72 20134 set=37,get=63 0.4251 20=91,300=6,7200=2,600=1
38 41 185 set=94,get=6 0 60
39 41 80 set=94,get=6 0 60
40 44 155 set=50,get=50 0.8551 28800=95,86400=5
41 44 171 get=50,set=50 0.8542 28800=95,86400=5
42 40 4703 get=96,add=4 1.5974 600=82,300=16,21600=2
43 44 304 set=50,get=50 0.99 28800
44 25 22 get=98,add=1 1.4084 2592000
45 10 120 add=15,get=85 0.6372 1296000
46 44 928 set=32,get=68 0.99 43200=58,3600=41
47 44 267 get=100 2.0637 172800
48 44 70 set=35,get=65 0.8191 86400
49 44 10658 set=43,get=57 1.5095 86400
50 18 67485 get=52,set=48 1.2816 900=73,1200=24,1199=3
51 44 221 get=90,set=10 1.9745 172800
52 20 273 get=91,add=4,gets=2,set=2 1.2117 86400=65,1209600=27,43200=7
53 36 9213 get=89,set=12 1.2061 2592000=66,1814400=34
54 19 246 get=97,set=3 1.611 12960
";

/// The cluster of this number.
pub(super) fn find(number: u32) -> Option<Workload> {
    let line = CLUSTERS.lines().find(|line| {
        let first = line.split(' ').next();
        first.and_then(|first| first.parse().ok()) == Some(number)
    })?;
    let words: Vec<&str> = line.split(' ').collect();
    let [_, key_size, value_size, mix, exponent, ttls] = words[..] else {
        unreachable!("every line of the table has six words")
    };
    Some(Workload {
        key_sizes: Sizes::Fixed(key_size.parse().ok()?),
        value_sizes: Sizes::Fixed(value_size.parse().ok()?),
        mix: mix.parse().ok()?,
        popularity: Popularity::Zipf(exponent.parse().ok()?),
        ttls: ttls.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_of_the_table_is_found() {
        let found: Vec<u32> = (0..100).filter(|&number| find(number).is_some()).collect();
        let expected: Vec<u32> = (1..=54).filter(|&number| number != 5).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn cluster_52_is_as_published() {
        let cluster = find(52).unwrap();
        let sizes = (cluster.key_sizes.mean(), cluster.value_sizes.mean());
        assert_eq!(sizes, (20.0, 273.0));
        assert_eq!(cluster.popularity, Popularity::Zipf(1.2117));
    }
}
