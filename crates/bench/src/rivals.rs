//! Stores in this process, for comparison: coua's, two maps under locks, and the segcache crate.
//!
//! Every rival gets the same keys in the same order, and copies each value that it finds into a
//! reply buffer.

mod coua;
mod maps;
mod measure;
mod segcache;
mod work;

pub(crate) use coua::CouaRival;
pub(crate) use maps::{DashMapRival, HashbrownRival};
pub(crate) use measure::{Load, Speed, measure};
pub(crate) use segcache::SegcacheRival;
pub(crate) use work::{KeySizes, Operation, Requests, Work};

/// A store that holds some keys already.
pub(crate) trait Rival: Sync {
    /// The name that users read, and choose by.
    fn name(&self) -> &'static str;

    /// How many requests this store can take in one burst; 1 alone for stores without bursts.
    fn batches(&self) -> &[usize] {
        &[1]
    }

    /// Does the work of thread `thread` until time is up; `batch` is one of
    /// [`batches`](Self::batches).
    fn run(&self, thread: usize, operation: Operation, batch: usize, work: &mut Work<'_>);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workload::Values;
    use crate::workload::{Popularity, Sampler};

    #[test]
    fn every_rival_finds_and_takes_all_keys() {
        const KEYS: u32 = 2000;
        let (sizes, values) = (KeySizes { most: 32 }, Values::new(40));
        let memory = 64 << 20;
        let rivals: [Box<dyn Rival>; 4] = [
            Box::new(CouaRival::filled(KEYS, sizes, &values, memory, 2).unwrap()),
            Box::new(HashbrownRival::filled(KEYS, sizes, &values)),
            Box::new(DashMapRival::filled(KEYS, sizes, &values)),
            Box::new(SegcacheRival::filled(
                KEYS,
                sizes,
                &values,
                memory,
                SegcacheRival::LOAD,
            )),
        ];
        let mut sampler = Sampler::new(Popularity::Uniform, KEYS, 1);
        let load = Load {
            values: &values,
            requests: &Requests::draw(sizes, &mut sampler),
            time: Duration::from_millis(5),
        };
        for rival in &rivals {
            for &batch in rival.batches() {
                for operation in [Operation::Set, Operation::Get] {
                    let speed = measure(rival.as_ref(), operation, batch, &[0, 1], load);
                    assert_eq!(
                        speed.succeeded,
                        1.0,
                        "{} {operation:?} {batch}",
                        rival.name()
                    );
                    assert!(speed.per_cpu_second > 0.0 && speed.per_second > 0.0);
                }
            }
        }
    }
}
