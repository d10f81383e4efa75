//! The loads that `server` measures.

/// One kind of load on servers in one state.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Whether everything fits.
    pub(crate) state: State,
    /// Fraction of requests that are sets.
    pub(crate) sets: f64,
    /// Requests in flight on each connection.
    pub(crate) depth: usize,
    /// Keys that one get asks for.
    pub(crate) keys_per_get: usize,
}

/// How full the servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Every key is there.
    Roomy,
    /// There are twice as many keys as memory holds, or more; sets evict and some gets miss.
    Full,
}

impl Case {
    /// Sets among the requests of a mixed load.
    const MIXED: f64 = 0.1;

    /// The name that users read, and that `--only` looks into.
    pub(crate) fn name(&self) -> String {
        let state = match self.state {
            State::Roomy => "",
            State::Full => "full: ",
        };
        let keys = self.keys_per_get;
        let request = match (self.sets, keys) {
            (0.0, 1) => "get".to_owned(),
            (0.0, _) => format!("get of {keys}"),
            (1.0, _) => "set".to_owned(),
            (_, 1) => "get 90 %, set 10 %".to_owned(),
            _ => format!("get of {keys} 90 %, set 10 %"),
        };
        format!("{state}{request}, depth {}", self.depth)
    }

    /// Whether the echo can give the same bytes: all requests are of one kind, and every key is
    /// there.
    pub(crate) fn has_echo(&self) -> bool {
        self.sets == 1.0 || (self.sets == 0.0 && self.state == State::Roomy)
    }
}

/// Gets, sets and multi-gets, with room and without.
pub(crate) fn all(depths: &[usize], keys_per_get: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (state, get_sets) in [(State::Roomy, 0.0), (State::Full, Case::MIXED)] {
        for sets in [get_sets, 1.0] {
            cases.extend(depths.iter().map(|&depth| Case {
                state,
                sets,
                depth,
                keys_per_get: 1,
            }));
        }
        cases.push(Case {
            state,
            sets: get_sets,
            depth: 1,
            keys_per_get,
        });
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<String> = all(&[1, 8], 100).iter().map(Case::name).collect();
        assert_eq!(names.len(), 10);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 10);
        assert!(names.contains(&"full: get of 100 90 %, set 10 %, depth 1".to_owned()));
    }
}
