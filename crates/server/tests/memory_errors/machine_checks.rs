//! Machine checks that the emulator raises: the whole way from the processor to a client's miss.

use crate::ends::tables_are_restored;
use crate::kernel_errors::{Error, serves_through};
use crate::lab::{Memory, machine_check};

#[test]
fn private() {
    serves_through(Error::MachineCheck, Memory::Private, 18);
}

#[test]
fn tmpfs() {
    serves_through(Error::MachineCheck, Memory::Tmpfs, 18);
}

#[test]
fn hugetlbfs() {
    serves_through(Error::MachineCheck, Memory::Hugetlbfs, 4);
}

#[test]
fn disk() {
    serves_through(Error::MachineCheck, Memory::Disk, 18);
}

#[test]
fn the_store_s_tables() {
    tables_are_restored(machine_check);
}
