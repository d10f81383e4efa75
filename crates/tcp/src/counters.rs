//! What a stack counts.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the stack was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// All of them with their names.
            pub fn all(&self) -> [(&'static str, u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Frames that came.
    frames_received,
    /// Frames that left.
    frames_sent,
    /// TCP segments that came with a valid checksum and header.
    segments_received,
    /// TCP segments that left.
    segments_sent,
    /// Of these, retransmissions.
    segments_retransmitted,
    /// UDP datagrams that came for a port on which datagrams are received.
    datagrams_received,
    /// UDP datagrams that left.
    datagrams_sent,
    /// Frames dropped because they are shorter than their headers say.
    dropped_length,
    /// Frames with a wrong checksum.
    dropped_checksum,
    /// Fragments of packets.
    dropped_fragment,
    /// Frames with an invalid field.
    dropped_field,
    /// Frames for others.
    dropped_not_ours,
    /// Packets from addresses that are not allowed, or are no valid source.
    dropped_source,
    /// Packets of unsupported protocols.
    dropped_protocol,
    /// Datagrams for a port on which none are received.
    dropped_port,
    /// Segments for which there is no connection.
    dropped_no_connection,
    /// Of these, those that were passed on to another stack of the same card.
    segments_passed_on,
    /// Segments outside the window, or old by their timestamp (RFC 7323, section 5).
    dropped_window,
    /// Segments with an acknowledgment of bytes that were never sent, or one that is too old.
    dropped_acknowledgment,
    /// Received bytes for which there was no memory, or beyond a gap no place.
    dropped_memory,
    /// Buffers of bytes beyond gaps that were discarded because memory was short (RFC 2018, section
    /// 8).
    pruned,
    /// Packets outside of connections that were dropped because a queue was full or a limit was
    /// reached.
    dropped_no_slot,
    /// Connections that others opened.
    accepted,
    /// Connections that were opened here.
    connected,
    /// SYNs that were answered with a cookie (RFC 4987, section 3.6).
    cookies_sent,
    /// Connections that began with a cookie that came back.
    cookies_accepted,
    /// Connection attempts that were refused because there was no room.
    refused_full,
    /// Connections that the peer reset.
    reset_by_peer,
    /// Connections given up because the peer did not answer.
    timed_out,
    /// Connections ended while memory was short because their peers received replies too slowly.
    shed,
    /// Connections without a user that were removed early because new ones needed their place.
    evicted,
    /// Resets sent.
    resets_sent,
    /// Challenge ACKs sent (RFC 5961).
    challenges_sent,
    /// Retransmission timeouts (RFC 6298).
    timeouts,
    /// Of these, spurious ones: the data had arrived, and the congestion window was restored (RFC
    /// 3522, RFC 4015).
    timeouts_undone,
    /// Tail loss probes (RFC 8985, section 7).
    tail_probes,
    /// Times that acknowledgments showed a loss.
    recoveries,
    /// Packets that came with a CE mark (RFC 3168).
    ecn_marks_received,
    /// Times that the window was reduced because the peer reported such marks.
    ecn_reductions,
    /// Buffers examined to find what was acknowledged by SACK, what is lost, and what to
    /// retransmit.
    queue_steps,
    /// Zero-window probes.
    window_probes,
    /// Keep-alive probes.
    keep_alives,
    /// ICMP messages that came and were understood.
    icmp_received,
    /// Paths that turned out to carry shorter packets only.
    mtu_lowered,
    /// Paths on which a longer packet was probed and arrived (RFC 4821).
    mtu_raised,
}
