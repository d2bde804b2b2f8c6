// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * strata:step, at our own nop5 sites: which thread, when, and the texts. A process that calls more
 * than SA_STEP_RATE times in a second is cut here, so that it cannot take the ring from others.
 */
#define SA_BPF_SIDE
#include "agent/bpf/vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "agent/bpf/steps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define RING (2 << 20)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING);
} step_calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct sa_step_rate);
} step_rates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sa_step_site);
	__type(value, struct sa_step_hears);
} step_sites SEC(".maps");

struct sa_step_drops step_drops;

static __always_inline bool is_second(struct pt_regs *ctx, u32 tgid, u64 t)
{
	struct sa_step_site site = {.ip = ctx->ip, .tgid = tgid};
	struct sa_step_hears *h = bpf_map_lookup_elem(&step_sites, &site);
	u64 cookie = bpf_get_attach_cookie(ctx);

	if (!h) {
		struct sa_step_hears me = {.cookie = cookie, .t_ns = t};

		bpf_map_update_elem(&step_sites, &site, &me, BPF_ANY);
		return false;
	}
	if (h->cookie != cookie && t - h->t_ns < SA_STEP_QUIET)
		return true;
	h->cookie = cookie;
	h->t_ns = t;
	return false;
}

static __always_inline bool allowed(u32 tgid, u64 t)
{
	u64 second = t / 1000000000;
	struct sa_step_rate *r = bpf_map_lookup_elem(&step_rates, &tgid);

	if (!r || r->second != second) {
		struct sa_step_rate now = {.second = second, .n = 1};

		bpf_map_update_elem(&step_rates, &tgid, &now, BPF_ANY);
		return true;
	}
	if (__sync_fetch_and_add(&r->n, 1) < SA_STEP_RATE)
		return true;
	__sync_fetch_and_add(&step_drops.rate, 1);
	return false;
}

/* Length, or the bit that says it is bad. size: with the NUL. */
static __always_inline u16 text(char *to, u32 size, const void *from, u8 *bad, u8 bit)
{
	long n = bpf_probe_read_user_str(to, size, from);
	char last = 0;

	if (n < 1 || n > size) {
		*bad |= bit;
		return 0;
	}
	/* full: is the byte where the NUL was put a NUL there too? */
	if (n == size && (bpf_probe_read_user(&last, 1, (const char *)from + size - 1) || last))
		*bad |= bit;
	return n - 1;
}

static __always_inline void fill(struct sa_step_call *c, struct pt_regs *ctx, u64 t)
{
	u64 id = bpf_get_current_pid_tgid();
	const void *name = (const void *)ctx->dx;

	c->t_ns = t;
	c->number = ctx->si;
	c->cgroup_id = bpf_get_current_cgroup_id();
	c->exec_id = bpf_get_current_task_btf()->self_exec_id;
	c->tgid = id >> 32;
	c->tid = id;
	c->what = (u32)ctx->di > 2 ? 255 : (u8)ctx->di;
	c->bad = 0;
	c->attr_len = 0;
	c->pad = 0;
	c->name_len = 0;
	bpf_get_current_comm(c->comm, sizeof c->comm);
	if (name)
		c->name_len = text(c->name, SA_STEP_NAME, name, &c->bad, SA_STEP_BAD_NAME);
}

SEC("uprobe")
int on_step(struct pt_regs *ctx)
{
	u64 t = bpf_ktime_get_ns();
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	const void *attr = (const void *)ctx->cx;
	struct sa_step_call *c;

	if (is_second(ctx, tgid, t) || !allowed(tgid, t))
		return 0;
	/* two sizes: attributes are rare */
	if (attr)
		c = bpf_ringbuf_reserve(&step_calls, sizeof *c, 0);
	else
		c = bpf_ringbuf_reserve(&step_calls, sizeof *c - SA_STEP_ATTR, 0);
	if (!c) {
		__sync_fetch_and_add(&step_drops.ring_full, 1);
		return 0;
	}
	fill(c, ctx, t);
	if (attr)
		c->attr_len = text(c->attr, SA_STEP_ATTR, attr, &c->bad, SA_STEP_BAD_ATTR);
	bpf_ringbuf_submit(c, bpf_ringbuf_query(&step_calls, BPF_RB_AVAIL_DATA) > RING / 4
				      ? BPF_RB_FORCE_WAKEUP
				      : BPF_RB_NO_WAKEUP);
	return 0;
}
