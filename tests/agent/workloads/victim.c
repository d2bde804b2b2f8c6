// SPDX-License-Identifier: Apache-2.0
/* A shared library whose copies are damaged by hostile.c: one function that needs nothing else. */
void victim_spin(void);
static void inner(void);

/* Two frames, of which one keeps a register: its table has several rows. */
static __attribute__((noinline)) void inner(void)
{
    __asm__ volatile("mov $300000, %%ecx\n1: dec %%ecx\njnz 1b\n" ::
                         : "ecx", "rbx", "r12", "memory");
}

void victim_spin(void)
{
    inner();
    __asm__ volatile("" ::: "memory");
}
