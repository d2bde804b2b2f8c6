/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libstrata_step.so: the function that a program calls to say where a step begins and ends, and the
 * note by which the agent finds it. void strata_step_probe(int what, uint64_t number,
 * const char *name, const char *attributes).
 *
 * A function of its own: the probe has one address, its arguments are in the registers of the
 * calling convention, and nothing lies in the red zone, where the call that newer kernels put in
 * place of the nop5 pushes its return address. The same bytes are in sdk/c/strata_step.h and, as a
 * packed library, in sdk/python/strata.py; a lint test compares them.
 */
	.text
	.globl	strata_step_probe
	.type	strata_step_probe, @function
	.balign	16
strata_step_probe:
990:	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00	/* nop5 */
	ret
	.size	strata_step_probe, . - strata_step_probe

	/* raised by the kernel while somebody listens */
	.section .probes, "aw", @progbits
	.globl	strata_step_semaphore
	.type	strata_step_semaphore, @object
	.balign	2
strata_step_semaphore:
	.2byte	0
	.size	strata_step_semaphore, 2

	.section .stapsdt.base, "aG", @progbits, .stapsdt.base, comdat
	.weak	_.stapsdt.base
	.hidden	_.stapsdt.base
_.stapsdt.base:
	.space	1
	.size	_.stapsdt.base, 1

	.section .note.stapsdt, "", @note
	.balign	4
	.4byte	992f - 991f, 994f - 993f, 3
991:	.asciz	"stapsdt"
992:	.balign	4
993:	.8byte	990b
	.8byte	_.stapsdt.base
	.8byte	strata_step_semaphore
	.asciz	"strata"
	.asciz	"step"
	.asciz	"4@%edi 8@%rsi 8@%rdx 8@%rcx"
994:	.balign	4

	.section .note.GNU-stack, "", @progbits
