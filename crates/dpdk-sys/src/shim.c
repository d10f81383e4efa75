/*
 * The part of DPDK that coua uses, as C functions with symbols.
 *
 * DPDK's fast path consists of inline functions, and its control structures differ from release to
 * release. This file turns the functions into ones with symbols and the structures into flat ones.
 * So Rust depends on two layouts only: that of struct rte_mbuf, as far as asserted below, and that
 * of the structures whose names begin with coua_.
 *
 * Negative results are -errno.
 */

/* For coua's own interrupt sources: these names and arguments stay the same from release to release. */
#define ALLOW_EXPERIMENTAL_API

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* The layout of struct rte_mbuf that lib.rs declares. */
#define AT(field, offset) _Static_assert(offsetof(struct rte_mbuf, field) == (offset), #field " has moved")
AT(buf_addr, 0);
AT(data_off, 16);
AT(refcnt, 18);
AT(nb_segs, 20);
AT(ol_flags, 24);
AT(pkt_len, 36);
AT(data_len, 40);
AT(buf_len, 54);
AT(tx_offload, 72);
_Static_assert(sizeof(struct rte_mbuf) == 128, "struct rte_mbuf has another size");
/* tx_offload consists of bit fields. Big-endian machines count them from the other end. */
_Static_assert(RTE_MBUF_L2_LEN_OFS == 0, "l2_len has moved");
_Static_assert(RTE_MBUF_L3_LEN_OFS == 7, "l3_len has moved");
_Static_assert(RTE_MBUF_L4_LEN_OFS == 16, "l4_len has moved");
_Static_assert(RTE_MBUF_TSO_SEGSZ_OFS == 24, "tso_segsz has moved");

/* Flags of a frame, and of a card. */
#define IS(name, value) _Static_assert((name) == (value), #name " has changed")
IS(RTE_MBUF_F_RX_L4_CKSUM_BAD, 1ULL << 3);
IS(RTE_MBUF_F_RX_IP_CKSUM_BAD, 1ULL << 4);
IS(RTE_MBUF_F_RX_VLAN_STRIPPED, 1ULL << 6);
IS(RTE_MBUF_F_RX_IP_CKSUM_GOOD, 1ULL << 7);
IS(RTE_MBUF_F_RX_L4_CKSUM_GOOD, 1ULL << 8);
IS(RTE_MBUF_F_TX_TCP_SEG, 1ULL << 50);
IS(RTE_MBUF_F_TX_TCP_CKSUM, 1ULL << 52);
IS(RTE_MBUF_F_TX_UDP_CKSUM, 3ULL << 52);
IS(RTE_MBUF_F_TX_IP_CKSUM, 1ULL << 54);
IS(RTE_MBUF_F_TX_IPV4, 1ULL << 55);
IS(RTE_MBUF_F_TX_IPV6, 1ULL << 56);
IS(RTE_ETH_RX_OFFLOAD_IPV4_CKSUM, 1ULL << 1);
IS(RTE_ETH_RX_OFFLOAD_UDP_CKSUM, 1ULL << 2);
IS(RTE_ETH_RX_OFFLOAD_TCP_CKSUM, 1ULL << 3);
IS(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM, 1ULL << 1);
IS(RTE_ETH_TX_OFFLOAD_UDP_CKSUM, 1ULL << 2);
IS(RTE_ETH_TX_OFFLOAD_TCP_CKSUM, 1ULL << 3);
IS(RTE_ETH_TX_OFFLOAD_TCP_TSO, 1ULL << 5);
IS(RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE, 1ULL << 16);
IS(RTE_PKTMBUF_HEADROOM, 128);
IS(RTE_ETH_NAME_MAX_LEN, 64);

/* EAL. */

int coua_eal_start(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

/* 1: the thread is registered now. 0: it was registered before. */
int coua_thread_register(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -rte_errno : 1;
}

void coua_thread_unregister(void)
{
	rte_thread_unregister();
}

/*
 * Makes EAL's interrupt thread call run in each round of its loop. The source is a descriptor that
 * is always readable, so the loop does not wait.
 */
int coua_call_each_round(void (*run)(void *), void *with)
{
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	int readable = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	int failed;

	if (handle == NULL || readable < 0)
		failed = -ENOMEM;
	else if (rte_intr_fd_set(handle, readable) || rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT))
		failed = -rte_errno;
	else
		failed = rte_intr_callback_register(handle, run, with);
	if (failed < 0) {
		if (readable >= 0)
			close(readable);
		rte_intr_instance_free(handle);
		return failed;
	}
	return 0;
}

/* Ports. */

struct coua_port_facts {
	char name[64];
	char driver[64];
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	int32_t numa_node;
	uint16_t mtu;
	uint16_t mtu_max;
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	uint8_t has_rss;
	uint8_t hashes_ports;
	uint8_t mac[6];
	uint8_t reserved[4];
};
_Static_assert(sizeof(struct coua_port_facts) == 168, "coua_port_facts has another size");

/* What a hash covers, of at least some frames; and what tells a peer's connections apart. */
#define ADDRESSES (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP)
#define PORTS (RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV6_TCP)

/* The first port, from `from` on, that is not part of another one; UINT16_MAX if there is none. */
uint16_t coua_port_next(uint16_t from)
{
	uint64_t port = rte_eth_find_next_owned_by(from, RTE_ETH_DEV_NO_OWNER);

	return port >= RTE_MAX_ETHPORTS ? UINT16_MAX : (uint16_t)port;
}

int coua_port_facts(uint16_t port, struct coua_port_facts *facts)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int failed;

	memset(facts, 0, sizeof(*facts));
	failed = rte_eth_dev_get_name_by_port(port, facts->name);
	if (failed)
		return failed;
	failed = rte_eth_dev_info_get(port, &info);
	if (failed)
		return failed;
	failed = rte_eth_macaddr_get(port, &mac);
	if (failed)
		return failed;
	failed = rte_eth_dev_get_mtu(port, &facts->mtu);
	if (failed)
		return failed;
	if (info.driver_name != NULL)
		strncpy(facts->driver, info.driver_name, sizeof(facts->driver) - 1);
	facts->rx_offloads = info.rx_offload_capa;
	facts->tx_offloads = info.tx_offload_capa;
	facts->numa_node = rte_eth_dev_socket_id(port);
	facts->mtu_max = info.max_mtu;
	/* Drivers that do not give a longest packet give a longest frame. */
	if (info.max_mtu == UINT16_MAX && info.max_rx_pktlen < UINT16_MAX)
		facts->mtu_max = info.max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN;
	facts->rx_queues_max = info.max_rx_queues;
	facts->tx_queues_max = info.max_tx_queues;
	facts->has_rss = (info.flow_type_rss_offloads & ADDRESSES) != 0;
	facts->hashes_ports = (info.flow_type_rss_offloads & PORTS) == PORTS;
	memcpy(facts->mac, mac.addr_bytes, 6);
	return 0;
}

struct coua_port_plan {
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	uint16_t queues;
	uint16_t mtu;
	uint16_t rx_descriptors; /* comes back as what the card takes */
	uint16_t tx_descriptors;
	uint8_t wants_rss;
	uint8_t wants_symmetric_key;
	uint8_t wants_interrupts;
	uint8_t reserved[5];
};
_Static_assert(sizeof(struct coua_port_plan) == 32, "coua_port_plan has another size");

/* The key 0x6d5a, repeated, hashes both directions of a connection alike (Woo and Park, 2012). */
static uint8_t symmetric_key[64];

int coua_port_configure(uint16_t port, struct coua_port_plan *plan)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	int failed;

	failed = rte_eth_dev_info_get(port, &info);
	if (failed)
		return failed;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = plan->mtu;
	conf.rxmode.offloads = plan->rx_offloads;
	conf.txmode.offloads = plan->tx_offloads;
	conf.intr_conf.rxq = plan->wants_interrupts;
	if (plan->wants_rss) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & ADDRESSES;
		if (plan->wants_symmetric_key && info.hash_key_size > 0 &&
				info.hash_key_size <= sizeof(symmetric_key)) {
			for (size_t i = 0; i < sizeof(symmetric_key); i++)
				symmetric_key[i] = i % 2 == 0 ? 0x6d : 0x5a;
			conf.rx_adv_conf.rss_conf.rss_key = symmetric_key;
			conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
		}
	}
	failed = rte_eth_dev_configure(port, plan->queues, plan->queues, &conf);
	if (failed)
		return failed;
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, &plan->rx_descriptors, &plan->tx_descriptors);
}

struct coua_port_hash {
	uint8_t is_over_addresses;
	uint8_t is_over_ports;
	uint8_t is_symmetric;
};

/* What the hash of a card covers that was set up for RSS; fails if its driver does not say. */
int coua_port_hash(uint16_t port, struct coua_port_hash *hash)
{
	struct rte_eth_dev_info info;
	struct rte_eth_rss_conf conf;
	uint8_t key[sizeof(symmetric_key)] = {0};
	int failed;

	memset(hash, 0, sizeof(*hash));
	memset(&conf, 0, sizeof(conf));
	failed = rte_eth_dev_info_get(port, &info);
	if (failed)
		return failed;
	if (info.hash_key_size > 0 && info.hash_key_size <= sizeof(key)) {
		conf.rss_key = key;
		conf.rss_key_len = info.hash_key_size;
	}
	failed = rte_eth_dev_rss_hash_conf_get(port, &conf);
	if (failed)
		return failed;
	hash->is_over_addresses = (conf.rss_hf & ADDRESSES) != 0;
	hash->is_over_ports = (conf.rss_hf & PORTS) == PORTS;
	hash->is_symmetric = conf.rss_key != NULL &&
		memcmp(key, symmetric_key, info.hash_key_size) == 0;
	return 0;
}

/*
 * Flow rules for received frames. They are made on a started port, since some drivers need that. Each
 * rule matches frames of one family and protocol; all other frames come as if there were no rule.
 */

struct coua_traffic {
	uint8_t is_ipv6;
	uint8_t is_udp;
};

struct coua_port_match {
	uint16_t value; /* bits outside the mask are zero */
	uint16_t mask;
	uint8_t is_own; /* 1: the destination port; 0: the source port */
	uint8_t reserved;
};

static int add_rule(uint16_t port, const struct coua_traffic *traffic,
		const struct coua_port_match *match, const struct rte_flow_action *action)
{
	const struct rte_flow_attr attr = { .ingress = 1 };
	const struct rte_flow_action actions[] = {
		*action,
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_item_tcp tcp, tcp_mask;
	struct rte_flow_item_udp udp, udp_mask;
	struct rte_flow_item items[] = {
		{ .type = RTE_FLOW_ITEM_TYPE_ETH },
		{ .type = traffic->is_ipv6 ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4 },
		{ .type = traffic->is_udp ? RTE_FLOW_ITEM_TYPE_UDP : RTE_FLOW_ITEM_TYPE_TCP },
		{ .type = RTE_FLOW_ITEM_TYPE_END },
	};
	struct rte_flow_error error; /* some drivers write to it without checking for NULL */
	int failed;

	memset(&tcp, 0, sizeof(tcp));
	memset(&tcp_mask, 0, sizeof(tcp_mask));
	memset(&udp, 0, sizeof(udp));
	memset(&udp_mask, 0, sizeof(udp_mask));
	if (match != NULL) {
		rte_be16_t value = rte_cpu_to_be_16(match->value);
		rte_be16_t mask = rte_cpu_to_be_16(match->mask);

		*(match->is_own ? &tcp.hdr.dst_port : &tcp.hdr.src_port) = value;
		*(match->is_own ? &tcp_mask.hdr.dst_port : &tcp_mask.hdr.src_port) = mask;
		*(match->is_own ? &udp.hdr.dst_port : &udp.hdr.src_port) = value;
		*(match->is_own ? &udp_mask.hdr.dst_port : &udp_mask.hdr.src_port) = mask;
		items[2].spec = traffic->is_udp ? (const void *)&udp : &tcp;
		items[2].mask = traffic->is_udp ? (const void *)&udp_mask : &tcp_mask;
	}
	failed = rte_flow_validate(port, &attr, items, actions, &error);
	if (failed)
		return failed;
	/* A driver that validates a rule may still refuse to create it. */
	if (rte_flow_create(port, &attr, items, actions, &error) == NULL)
		return rte_errno > 0 ? -rte_errno : -EIO;
	return 0;
}

/* Spreads frames over the queues below the given number, by a hash of addresses and ports. */
int coua_rule_hash(uint16_t port, const struct coua_traffic *traffic, uint16_t queues)
{
	uint16_t all[RTE_MAX_QUEUES_PER_PORT];
	struct rte_flow_action_rss rss;
	const struct rte_flow_action action = { .type = RTE_FLOW_ACTION_TYPE_RSS, .conf = &rss };

	if (queues > RTE_DIM(all))
		return -EINVAL;
	for (uint16_t i = 0; i < queues; i++)
		all[i] = i;
	memset(&rss, 0, sizeof(rss));
	rss.func = RTE_ETH_HASH_FUNCTION_DEFAULT;
	if (traffic->is_ipv6)
		rss.types = traffic->is_udp ?
			RTE_ETH_RSS_NONFRAG_IPV6_UDP : RTE_ETH_RSS_NONFRAG_IPV6_TCP;
	else
		rss.types = traffic->is_udp ?
			RTE_ETH_RSS_NONFRAG_IPV4_UDP : RTE_ETH_RSS_NONFRAG_IPV4_TCP;
	rss.queue_num = queues;
	rss.queue = all;
	return add_rule(port, traffic, NULL, &action);
}

/* Sends the frames of some ports to one queue. */
int coua_rule_queue(uint16_t port, const struct coua_traffic *traffic,
		const struct coua_port_match *match, uint16_t queue)
{
	const struct rte_flow_action_queue conf = { .index = queue };
	const struct rte_flow_action action = { .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &conf };

	return add_rule(port, traffic, match, &action);
}

/* Removes all rules. */
int coua_rules_clear(uint16_t port)
{
	struct rte_flow_error error;

	return rte_flow_flush(port, &error);
}

int coua_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors, struct rte_mempool *pool)
{
	return rte_eth_rx_queue_setup(port, queue, descriptors, rte_eth_dev_socket_id(port), NULL, pool);
}

int coua_tx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors)
{
	return rte_eth_tx_queue_setup(port, queue, descriptors, rte_eth_dev_socket_id(port), NULL);
}

int coua_port_set_mtu(uint16_t port, uint16_t mtu)
{
	return rte_eth_dev_set_mtu(port, mtu);
}

/* Neighbour discovery is sent to multicast addresses. */
int coua_port_receive_groups(uint16_t port)
{
	return rte_eth_allmulticast_enable(port);
}

int coua_port_start(uint16_t port)
{
	return rte_eth_dev_start(port);
}

int coua_port_stop(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

int coua_port_close(uint16_t port)
{
	return rte_eth_dev_close(port);
}

struct coua_link {
	uint32_t speed_mbps;
	uint32_t is_up;
};

int coua_port_link(uint16_t port, struct coua_link *out)
{
	struct rte_eth_link link;
	int failed = rte_eth_link_get_nowait(port, &link);

	if (failed)
		return failed;
	out->speed_mbps = link.link_speed;
	out->is_up = link.link_status == RTE_ETH_LINK_UP;
	return 0;
}

struct coua_port_counters {
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t rx_no_buffer;
	uint64_t tx_errors;
};

int coua_port_counters(uint16_t port, struct coua_port_counters *out)
{
	struct rte_eth_stats stats;
	int failed = rte_eth_stats_get(port, &stats);

	if (failed)
		return failed;
	out->rx_missed = stats.imissed;
	out->rx_errors = stats.ierrors;
	out->rx_no_buffer = stats.rx_nombuf;
	out->tx_errors = stats.oerrors;
	return 0;
}

/* Interrupts. */

int coua_interrupt_add(uint16_t port, uint16_t queue, int epoll)
{
	return rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_ADD, NULL);
}

int coua_interrupt_remove(uint16_t port, uint16_t queue, int epoll)
{
	return rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_DEL, NULL);
}

int coua_interrupt_enable(uint16_t port, uint16_t queue)
{
	return rte_eth_dev_rx_intr_enable(port, queue);
}

int coua_interrupt_disable(uint16_t port, uint16_t queue)
{
	return rte_eth_dev_rx_intr_disable(port, queue);
}

/* Consumes the set's events, so that it is no longer readable. */
int coua_interrupt_consume(int epoll)
{
	struct rte_epoll_event events[4];

	return rte_epoll_wait(epoll, events, 4, 0);
}

/* Pools. */

struct rte_mempool *coua_pool_create(const char *name, uint32_t count, uint32_t cache_len,
		uint16_t room_len, int numa_node, int *failed)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create(name, count, cache_len, 0, room_len, numa_node);

	*failed = pool == NULL ? -rte_errno : 0;
	return pool;
}

/* Does nothing and returns 0 while some of the pool's mbufs are in use. */
int coua_pool_free_if_full(struct rte_mempool *pool)
{
	if (!rte_mempool_full(pool))
		return 0;
	rte_mempool_free(pool);
	return 1;
}

/* Frames. */

int coua_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void coua_free_bulk(struct rte_mbuf **mbufs, uint32_t count)
{
	rte_pktmbuf_free_bulk(mbufs, count);
}

uint16_t coua_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t coua_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

uint16_t coua_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_prepare(port, queue, mbufs, count);
}

/* Copies a frame of several mbufs into its first one; fails if it is too long for that. */
int coua_gather(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_linearize(mbuf);
}

/* Puts a stripped VLAN tag back into the frame; fails if there is no room for it. */
int coua_vlan_restore(struct rte_mbuf *mbuf)
{
	struct rte_mbuf *same = mbuf;

	mbuf->ol_flags &= ~(RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED);
	return rte_vlan_insert(&same);
}
