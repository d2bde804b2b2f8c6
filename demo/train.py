#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""train.py [SECONDS [WORKERS]]: a small transformer, trained on the CPU, with data from worker processes.

Needs PyTorch (Debian's python3-torch, or PyPI's torch). Prints its steps per second. With TRAIN_HOLD=SECONDS
and TRAIN_DUMP=PREFIX the main thread, in the midst of a backward pass, and each worker, in the midst of a sample,
write the stack that Python itself sees (sys._current_frames) to PREFIX-PID, and stay there for so much CPU time:
what a profiler shows of them must be that stack.
"""
import json
import os
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, WORDS, WIDTH, BATCH = 32, 128, 64, 8
WORKERS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
HOLD = float(os.environ.get("TRAIN_HOLD", "0"))
HOLD_AT = 5  # step, and batch of a worker


def hold():
    """The line below is where the stack stands; who called is what counts."""
    frame, stack = sys._current_frames()[threading.get_ident()], []
    while frame:
        stack.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    with open(f"{os.environ['TRAIN_DUMP']}-{os.getpid()}", "w", encoding="utf-8") as f:
        json.dump(stack, f)
    end = time.thread_time() + HOLD
    big = 3 ** 20000
    while time.thread_time() < end:
        big * big


class Sentences(Dataset):
    """Made up, with some rule in them that can be learnt."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        if HOLD and i % BATCH == 0 and i // BATCH in range(HOLD_AT, HOLD_AT + WORKERS):
            hold()
        generator = torch.Generator().manual_seed(i)
        start, stride = torch.randint(1, WORDS, (2,), generator=generator).tolist()
        words = torch.tensor([(start + stride * k * k) % WORDS for k in range(LENGTH + 1)])
        return words[:-1], words[1:]


class Watched(torch.autograd.Function):
    """The identity; of its backward pass one may be held."""

    step = 0

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if HOLD and Watched.step == HOLD_AT:
            hold()
        return gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.out(Watched.apply(self.layers(self.words(x) + self.places)))


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


def name_thread(name):
    """What the kernel calls it; PyTorch 1 does not."""
    with open("/proc/thread-self/comm", "w", encoding="ascii") as f:
        f.write(name)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    torch.manual_seed(1)
    torch.set_num_threads(2)
    name_thread("train")
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = DataLoader(Sentences(), batch_size=BATCH, num_workers=WORKERS,
                      worker_init_fn=lambda i: name_thread(f"data-{i}"))
    begun, from_ns = time.monotonic(), time.time_ns()
    for x, y in data:
        loss = train_step(model, optimizer, x, y)
        Watched.step += 1
        if time.monotonic() - begun > seconds:
            break
    used = time.monotonic() - begun
    print(f"torch={torch.__version__} steps={Watched.step} per_s={Watched.step / used:.2f} loss={loss:.3f} "
          f"from={from_ns}ns to={time.time_ns()}ns", flush=True)


if __name__ == "__main__":
    main()
