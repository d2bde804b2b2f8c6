// SPDX-License-Identifier: Apache-2.0
#include "agent/unwind/unwind_rbp.h"

#include <string.h>

#include "base/bytes.h"

#define REACH    UINT64_C(16384) /* of a function before the address */
#define PROLOGUE 64              /* bytes behind its begin that are looked at */

static const uint8_t begins[4] = {0x55, 0x48, 0x89, 0xe5}; /* push rbp; mov rbp, rsp */
static const uint8_t endbr[4] = {0xf3, 0x0f, 0x1e, 0xfa};

/* n bytes of executable code at an ELF address; fewer at the segment's begin or end. *va: of the
 * first one read. */
static uint64_t read_code(const struct binary *b, uint64_t *va, uint64_t n, uint8_t *to)
{
    for (uint32_t i = 0; i < b->n_load; i++) {
        const struct elffile_load *l = &b->load[i];
        uint64_t end = *va + n;
        int64_t got;

        if (!l->exec || end <= l->vaddr || *va >= l->vaddr + l->filesz)
            continue;
        if (*va < l->vaddr)
            *va = l->vaddr;
        if (end > l->vaddr + l->filesz)
            end = l->vaddr + l->filesz;
        got = binary_read(b, to, end - *va, l->offset + (*va - l->vaddr));
        return got > 0 ? (uint64_t)got : 0;
    }
    return 0;
}

/* What stands between mov rbp, rsp and the body: pushes, copies of registers, one subtraction. */
static uint64_t frame_bytes(const uint8_t *p, uint64_t n)
{
    uint64_t sum = 0, i = 0;

    while (i + 8 <= n) {
        const uint8_t *c = p + i;

        if ((c[0] & 0xf8) == 0x50) { /* push reg */
            sum += 8;
            i += 1;
        } else if (c[0] == 0x41 && (c[1] & 0xf8) == 0x50) { /* push r8 .. r15 */
            sum += 8;
            i += 2;
        } else if (c[0] == 0x48 && c[1] == 0x83 && c[2] == 0xec) { /* sub rsp, imm8 */
            return sum + c[3];
        } else if (c[0] == 0x48 && c[1] == 0x81 && c[2] == 0xec) { /* sub rsp, imm32 */
            return sum + bytes_u32(c + 3);
        } else if ((c[0] & 0xf8) == 0x48 && (c[1] == 0x89 || c[1] == 0x8b) && c[2] >= 0xc0) {
            i += 3; /* mov between registers of 64 bits */
        } else if ((c[0] == 0x89 || c[0] == 0x31) && c[1] >= 0xc0) {
            i += 2; /* of 32 bits; xor */
        } else {
            break;
        }
    }
    return sum;
}

bool unwind_rbp_frame(const struct binary *b, uint64_t va, uint64_t *ret_above, uint64_t *ret_begin)
{
    static _Thread_local uint8_t code[REACH + PROLOGUE];
    uint64_t at = va > REACH ? va - REACH : 0, n = read_code(b, &at, va - at + PROLOGUE, code);

    if (n <= sizeof begins || at > va)
        return false;
    for (uint64_t i = va - at < n ? va - at : n; i-- > 0;) {
        if (i + sizeof begins > n || memcmp(code + i, begins, sizeof begins) != 0)
            continue;
        if (at + i + sizeof begins > va) /* not there yet: rbp is still the caller's */
            return false;
        *ret_begin = at + i;
        i += sizeof begins;
        *ret_above = frame_bytes(code + i, n - i < PROLOGUE ? n - i : PROLOGUE);
        return *ret_begin + sizeof begins <= va;
    }
    return false;
}

/* A stub of the procedure linkage table: jmp *off(rip), behind endbr64 or bnd perhaps. */
static bool is_stub(const struct binary *b, uint64_t va)
{
    uint8_t c[8] = {};
    uint64_t n = read_code(b, &va, sizeof c, c), i = 0;

    if (n >= 4 && memcmp(c, endbr, sizeof endbr) == 0)
        i = 4;
    i += c[i] == 0xf2;
    return n >= i + 2 && c[i] == 0xff && c[i + 1] == 0x25;
}

bool unwind_rbp_called(const struct binary *b, uint64_t va, uint64_t begin)
{
    uint64_t at = va - 7, to;
    uint8_t c[7] = {};

    if (va < 7 || read_code(b, &at, sizeof c, c) != sizeof c || at != va - 7)
        return false;
    if (c[2] == 0xe8) { /* call rel32 */
        to = va + (uint64_t)(int64_t)(int32_t)bytes_u32(c + 3);
        return (begin && (to == begin || to + sizeof endbr == begin)) || is_stub(b, to);
    }
    /* call *reg, *disp8(reg), *disp32(reg), *off(rip) */
    return (c[5] == 0xff && (c[6] & 0xf8) == 0xd0) || (c[4] == 0xff && (c[5] & 0xf8) == 0x50) ||
           (c[1] == 0xff && ((c[2] & 0xf8) == 0x90 || c[2] == 0x15));
}
