//! The policy on a simulated machine, whose other programs want more memory and less.

use super::*;

const GOAL: usize = 1000;

/// A machine that has room for so many bytes of coua's beside what others need.
struct Machine {
    policy: Policy,
    second: u64,
    limit: usize,
    changes: usize,
    lowest: usize,
    highest: usize,
}

impl Machine {
    fn new(floor: usize, step: usize) -> Machine {
        Machine {
            policy: Policy::new(floor, step),
            second: 0,
            limit: GOAL,
            changes: 0,
            lowest: GOAL,
            highest: 0,
        }
    }

    /// Lets so many seconds pass with `room` for coua. What is held back is given back at once.
    fn run(&mut self, seconds: u64, room: usize, goal: usize) {
        (self.changes, self.lowest, self.highest) = (0, usize::MAX, 0);
        for _ in 0..seconds {
            self.second += 1;
            let is_pressed = self.limit.min(goal) > room;
            let now = Duration::from_secs(self.second);
            let limit = goal - self.policy.observe(now, goal, is_pressed);
            self.changes += usize::from(limit != self.limit);
            self.limit = limit;
            self.lowest = self.lowest.min(limit);
            self.highest = self.highest.max(limit);
        }
    }
}

#[test]
fn without_pressure_nothing_changes() {
    let mut machine = Machine::new(200, 100);
    machine.run(10_000, GOAL, GOAL);
    assert_eq!((machine.changes, machine.limit), (0, GOAL));
}

#[test]
fn memory_is_held_back_until_there_is_enough_and_returns_afterwards() {
    let mut machine = Machine::new(200, 100);
    machine.run(25, 550, GOAL);
    assert_eq!(machine.limit, 500);
    machine.run(300, GOAL, GOAL);
    assert_eq!((machine.limit, machine.changes), (GOAL, 5));
}

#[test]
fn the_floor_stays_whatever_others_want() {
    let mut machine = Machine::new(250, 100);
    machine.run(1000, 0, GOAL);
    assert_eq!((machine.limit, machine.lowest), (250, 250));
    // One step at a time, so that the memory that went back can help.
    let mut machine = Machine::new(250, 100);
    machine.run(5, 0, GOAL);
    assert!(machine.limit >= 800);
}

#[test]
fn a_limit_at_the_edge_does_not_go_up_and_down_all_the_time() {
    let mut machine = Machine::new(200, 100);
    machine.run(60, 550, GOAL);
    // Each step up meets pressure.
    machine.run(4 * 3600, 550, GOAL);
    assert!(machine.lowest >= 400 && machine.highest <= 600);
    let changes = machine.changes;
    assert!(
        (2..60).contains(&changes),
        "{changes} changes in four hours"
    );
    // Nor does it stay away for ever.
    machine.run(3 * 3600, GOAL, GOAL);
    assert_eq!(machine.limit, GOAL);
    // After a quiet time it returns as soon as at first.
    machine.run(10, 850, GOAL);
    machine.run(120, GOAL, GOAL);
    assert_eq!(machine.limit, GOAL);
}

#[test]
fn another_goal_counts_at_once() {
    let mut machine = Machine::new(200, 100);
    machine.run(60, 550, GOAL);
    let limit = machine.limit;
    machine.run(1, limit, 600);
    assert!((200..=600).contains(&machine.limit));
    // Below the floor nothing is held back.
    machine.run(1, 0, 150);
    assert_eq!(machine.limit, 150);
    machine.run(400, GOAL, GOAL);
    assert_eq!(machine.limit, GOAL);
}
