// SPDX-License-Identifier: Apache-2.0
#include "agent/name/gilwait.h"

#include "agent/bpf/cpu.h"

#define MAX_LIBC   8 /* words of the C library above a wait */
#define MAX_UNSEEN 2 /* unnamed functions of the interpreter: take_gil, _PyThreadState_Attach */

struct looking {
    struct names *names;
    struct buf *name;
};

/* The name of the function at a user word, in k->name; false: it has none there. */
static bool name_of(struct looking *k, uint64_t w)
{
    struct binary *b = (w & SA_W_TAG) == SA_W_NATIVE ? binary_by_id(SA_W_BIN(w)) : NULL;
    bool named;

    buf_reset(k->name);
    if (!b)
        return false;
    named = names_native(k->names, b, SA_W_ADDR(w), k->name);
    (void)binary_unref(b);
    return named;
}

static bool is_named(const struct looking *k, const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(buf_view(k->name), str_c(name[i])))
            return true;
    return false;
}

/* A wait for a condition or its mutex, of which the lock is made, as the outermost frame of the C
 * library: where the interpreter begins, or end. Python's other locks wait in other ways. */
static uint32_t above_wait(struct looking *k, const uint64_t *word, uint32_t n)
{
    static const char *const wait[] = {"pthread_cond_timedwait",   "pthread_cond_clockwait",
                                       "__pthread_cond_timedwait", "__pthread_cond_clockwait",
                                       "pthread_cond_wait",        "__pthread_cond_wait",
                                       "pthread_mutex_lock",       "__pthread_mutex_lock",
                                       "pthread_cond_signal",      "__pthread_cond_signal"};

    for (uint32_t i = 0; i < n && i < MAX_LIBC; i++) {
        if (name_of(k, word[i]) && is_named(k, wait, sizeof wait / sizeof *wait))
            return i + 1;
    }
    return n;
}

/* One or two unnamed functions of the interpreter, called by one of those that take the lock, or by
 * the eval function, before which its Python frames stand. */
bool gilwait_by_stack(struct names *names, struct buf *name, const uint64_t *word, uint32_t n)
{
    static const char *const take[] = {"take_gil", "drop_gil"};
    static const char *const caller[] = {"PyEval_RestoreThread", "PyEval_AcquireThread",
                                         "PyGILState_Ensure", "_Py_HandlePending",
                                         "_PyEval_EvalFrameDefault"};
    struct looking looking = {names, name}, *k = &looking;
    uint32_t i = above_wait(k, word, n), first = i, bin;

    if (i == n || (word[i] & SA_W_TAG) != SA_W_NATIVE)
        return false;
    bin = SA_W_BIN(word[i]);
    for (; i < n && i < first + MAX_UNSEEN; i++) {
        if ((word[i] & SA_W_TAG) != SA_W_NATIVE || SA_W_BIN(word[i]) != bin)
            break;
        if (name_of(k, word[i])) {
            if (is_named(k, take, sizeof take / sizeof *take))
                return true;
            break;
        }
    }
    if (i == n)
        return false;
    if ((word[i] & SA_W_TAG) == SA_W_NATIVE)
        return SA_W_BIN(word[i]) == bin && name_of(k, word[i]) &&
               is_named(k, caller, sizeof caller / sizeof *caller);
    if ((word[i] & SA_W_TAG) != SA_W_PY)
        return false;
    while (i < n && (word[i] & SA_W_TAG) == SA_W_PY)
        i++;
    return i < n && (word[i] & SA_W_TAG) == SA_W_NATIVE && SA_W_BIN(word[i]) == bin;
}
