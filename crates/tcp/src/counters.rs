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
    /// TCP segments that came and were right.
    segments_received,
    /// TCP segments that left.
    segments_sent,
    /// Of these, those that carried bytes that had been sent before.
    segments_retransmitted,
    /// UDP datagrams that came for a port that is listened at.
    datagrams_received,
    /// UDP datagrams that left.
    datagrams_sent,
    /// Frames that are shorter than their headers say.
    dropped_length,
    /// Frames with a wrong checksum.
    dropped_checksum,
    /// Fragments of packets.
    dropped_fragment,
    /// Frames with a field that is wrong.
    dropped_field,
    /// Frames for others.
    dropped_not_ours,
    /// Packets from addresses that are not allowed, or from which none can come.
    dropped_source,
    /// Packets of protocols that are not spoken.
    dropped_protocol,
    /// Datagrams for a port at which nobody listens.
    dropped_port,
    /// Segments that no connection is there for.
    dropped_no_connection,
    /// Of these, those that were passed on to another stack of the same card.
    segments_passed_on,
    /// Segments outside of the window, or old ones by their timestamp (RFC 7323, section 5).
    dropped_window,
    /// Segments with an acknowledgment of what was never sent, or that is too old.
    dropped_acknowledgment,
    /// Bytes received beyond a gap for which there was no memory or place.
    dropped_memory,
    /// Buffers of bytes beyond gaps that were thrown away again, as memory was short (RFC 2018, section 8).
    pruned,
    /// What was to be sent but found no room in the card's queue, and was not kept.
    dropped_no_slot,
    /// Connections that others opened.
    accepted,
    /// Connections that were opened here.
    connected,
    /// SYNs that were answered without being remembered (RFC 4987, section 3.6).
    cookies_sent,
    /// Connections that began with a cookie that came back.
    cookies_accepted,
    /// Openings that were refused since there was no room.
    refused_full,
    /// Connections that the peer reset.
    reset_by_peer,
    /// Connections given up for want of any answer.
    timed_out,
    /// Connections given up as memory was short, whose peers took what they had asked for too slowly.
    shed,
    /// Connections without a user that were forgotten early, as new ones needed their place.
    evicted,
    /// Resets sent.
    resets_sent,
    /// Challenges sent (RFC 5961).
    challenges_sent,
    /// Retransmission timeouts (RFC 6298).
    timeouts,
    /// Of these, those that turned out to have been too early: what they waited for had arrived, and
    /// the congestion window was restored (RFC 3522, RFC 4015).
    timeouts_undone,
    /// Tail loss probes (RFC 8985, section 7).
    tail_probes,
    /// Times that a loss was found by acknowledgments.
    recoveries,
    /// Packets that came with a queue's mark of congestion (RFC 3168).
    ecn_marks_received,
    /// Times that the window was reduced since the peer told of such marks.
    ecn_reductions,
    /// Buffers looked at to find what has arrived beyond gaps, what is lost, and what goes again.
    queue_steps,
    /// Zero-window probes.
    window_probes,
    /// Keep-alive probes.
    keep_alives,
    /// ICMP messages that came and were understood.
    icmp_received,
    /// Paths that turned out to take shorter packets only.
    mtu_lowered,
    /// Paths on which a longer packet was tried again, and arrived (RFC 4821).
    mtu_raised,
}
