//! Fabrics, by their parameters.

/// What a fabric and its processors cost, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What it is.
    pub name: &'static str,
    /// From the sending card to the other node's memory.
    pub latency_ps: u64,
    /// The processor's time to post a message.
    pub post_ps: u64,
    /// The processor's time to take a completion.
    pub poll_ps: u64,
    /// The shortest time between two messages of a card.
    pub gap_ps: u64,
    /// The time of a byte on the wire.
    pub byte_ps: u64,
    /// The time to copy a byte.
    pub copy_ps: u64,
    /// What a copy costs beside its bytes.
    pub copy_start_ps: u64,
    /// What an answer to a read costs the other card.
    pub read_ps: u64,
    /// What a server of its time needs for a request beside its transfer. For the fabrics of published figures it is
    /// fitted so that the model gives those figures; all protocols are given the same.
    pub request_ps: u64,
    /// Messages of one connection can overtake each other.
    pub is_unordered: bool,
}

/// InfiniBand DDR (ConnectX, 16 Gbit/s of data; 2008).
pub const DDR: Profile = Profile {
    name: "DDR",
    latency_ps: 2_000_000,
    post_ps: 300_000,
    poll_ps: 250_000,
    gap_ps: 300_000,
    // 1.5 GB/s behind PCIe of the first generation.
    byte_ps: 667,
    copy_ps: 250,
    copy_start_ps: 60_000,
    read_ps: 600_000,
    request_ps: 10_000_000,
    is_unordered: false,
};

/// InfiniBand QDR (ConnectX-2, 3.2 GB/s; 2011).
pub const QDR: Profile = Profile {
    name: "QDR",
    latency_ps: 1_300_000,
    post_ps: 200_000,
    poll_ps: 150_000,
    gap_ps: 200_000,
    byte_ps: 312,
    copy_ps: 180,
    copy_start_ps: 50_000,
    read_ps: 400_000,
    request_ps: 5_800_000,
    is_unordered: false,
};

/// InfiniBand FDR (ConnectX-3, 6.2 GB/s; the second seed's).
pub const FDR: Profile = Profile {
    name: "FDR",
    latency_ps: 900_000,
    post_ps: 150_000,
    poll_ps: 100_000,
    gap_ps: 120_000,
    byte_ps: 161,
    copy_ps: 120,
    copy_start_ps: 40_000,
    read_ps: 300_000,
    request_ps: 3_000_000,
    is_unordered: false,
};

/// RoCE at 100 Gbit/s through one switch.
pub const ROCE_100: Profile = Profile {
    name: "100 G RoCE",
    latency_ps: 1_200_000,
    post_ps: 80_000,
    poll_ps: 60_000,
    gap_ps: 20_000,
    byte_ps: 86,
    copy_ps: 80,
    copy_start_ps: 25_000,
    read_ps: 200_000,
    request_ps: 1_000_000,
    is_unordered: false,
};

/// Amazon's EFA: reliable, and not in order.
pub const EFA: Profile = Profile {
    name: "EFA",
    latency_ps: 7_500_000,
    post_ps: 150_000,
    poll_ps: 120_000,
    gap_ps: 100_000,
    byte_ps: 86,
    copy_ps: 80,
    copy_start_ps: 25_000,
    read_ps: 500_000,
    request_ps: 1_000_000,
    is_unordered: true,
};

/// TCP over 10 Gbit/s Ethernet with an offload engine, as the third seed had it: a system call, a copy and an interrupt
/// at each end of a message. Fitted to that paper's ratio at 4 KiB.
pub const TCP_10G: Profile = Profile {
    name: "TCP, 10 GigE",
    latency_ps: 9_500_000,
    post_ps: 4_000_000,
    poll_ps: 4_500_000,
    gap_ps: 1_000_000,
    byte_ps: 900,
    copy_ps: 180,
    copy_start_ps: 50_000,
    read_ps: 0,
    request_ps: 5_800_000,
    is_unordered: false,
};

/// TCP over InfiniBand QDR (IPoIB), the same.
pub const IPOIB: Profile = Profile {
    name: "TCP, IPoIB",
    latency_ps: 13_000_000,
    post_ps: 5_000_000,
    poll_ps: 6_000_000,
    gap_ps: 1_000_000,
    byte_ps: 800,
    copy_ps: 180,
    copy_start_ps: 50_000,
    read_ps: 0,
    request_ps: 5_800_000,
    is_unordered: false,
};
