# %% [markdown]
# # Start two processes and make them talk
#
# This course takes you from one [device](../docs/glossary.md#device) to many with PyTorch. You do it, you do
# not only read it: you run every cell, change it, break it, and see the result on the machine in front of
# you. You need no GPU. Everything in the course really runs on two CPU cores, and the same cells run unedited
# on two or more GPUs.
#
# **You'll do**
#
# 1. start two ranks, and have each say hello
# 2. add up their numbers, first by hand, then with `all_reduce`
# 3. run a function of your own on every rank
# 4. freeze the ranks on purpose, read the explanation, and bring them back
#
# **You'll learn** what a rank is, how to read its output, and what a collective is.
#
# **You need** about 25 minutes and two CPU cores. Cells that differ on GPUs: none.

# %% [markdown]
# ## The map
#
# Ten lessons follow the ten steps that guides to multi-GPU training usually give. Each lesson takes what
# is usually said about its step, and puts it to the test.

# %%
import mgpu_utils as mgpu

mgpu.plots.ten_steps();

# %% [markdown]
# Look at the frames. In half of the steps the devices need not send each other anything. The optimizer is
# one of the quiet ones. In lesson 07 you count its messages yourself.

# %% [markdown]
# ## What this machine has

# %%
mgpu.survey()

# %% [markdown]
# Read the row *Ranks* first, then *Why*. It says what the course does on this machine: two or more
# GPUs get one rank each. On any other machine the ranks are CPU processes. A single GPU, or the GPU of a
# Mac, is used for work that needs one device.

# %% [markdown]
# ## The claim
#
# > To learn multi-GPU training, you need several GPUs.
#
# Do you believe it? Write your answer in place of the dots, and run the cell. Nobody marks it. You will
# see it again beside the result.

# %%
mgpu.predict("00/need-gpus", ["all of it", "only the speed", "nothing"], answer=...,
             question="What can you not see on a machine without GPUs?")

# %% [markdown]
# ## Start two ranks
#
# A **[rank](../docs/glossary.md#rank)** is one process that takes part in a training job. It has a number,
# counted from 0. With GPUs, each rank drives one of them.

# %%
ranks = mgpu.start_ranks(2)
ranks

# %% [markdown]
# That took a few seconds: two new Python processes started, imported PyTorch, found each other, and
# formed a *[process group](../docs/glossary.md#process-group)*. They now wait for work. The last line says what
# they are, and which [backend](../docs/glossary.md#backend) carries what they send: `gloo` between CPU
# processes, `nccl` between GPUs.
#
# `%%ranks` on the first line of a cell sends the cell to every rank, at the same time.

# %% tags=["nbval-check-output"]
# %%ranks
print(f"hello from rank {rank} of {world_size}")

# %% [markdown]
# Each line of output begins with the rank that printed it. When the cell has finished, the lines stand in
# the order of the ranks, whoever was first.
#
# Are these really two processes, or does one pretend? Ask for their process numbers. You and each rank
# must have a different one.

# %% tags=["nbval-check-output"]
import os

processes = {os.getpid(), *ranks.run(os.getpid)}
print(len(processes), "processes: this notebook and", len(processes) - 1, "ranks")

# %% [markdown]
# ## Each rank has its own variables
#
# Let each rank make a number. `rank` and [`world_size`](../docs/glossary.md#world_size) (how many ranks there
# are) are ready for you on every rank, and so are `device`, `torch` and `dist` (which is `torch.distributed`).

# %% tags=["nbval-check-output"]
# %%ranks
mine = torch.tensor(rank + 1.0, device=device)
print("I hold", mine.item())

# %% [markdown]
# Rank 0 holds 1, rank 1 holds 2. It is the same name, but not the same variable. To look at one rank
# alone, put its number after `%%rank`:

# %% tags=["nbval-check-output"]
# %%rank 0
mine.item()

# %% [markdown]
# And the notebook? It is a third process. It has no `mine`:

# %% tags=["nbval-check-output"]
"mine" in globals()

# %% [markdown]
# So there are three places where a cell can run. No mark: in the notebook. `%%ranks`: on every rank.
# `%%rank 0`: on one of them.

# %% [markdown]
# ## Add up their numbers, by hand
#
# Two ranks have worked, and each holds a part of the answer. Somebody has to put the parts together. In
# training these parts are gradients. Here they are the numbers 1 and 2.
#
# The obvious way: bring every number to one place, add, and send the sum back. `ranks.run` calls a
# function on every rank and returns one result a rank, in rank order.

# %% tags=["nbval-check-output"]
def my_number():
    return mine.item()

numbers = ranks.run(my_number)
numbers

# %% [markdown]
# You wrote `my_number` here, in the notebook. A copy of it ran on each rank, and there it found that
# rank's own `mine`. Now add, and send the sum back:

# %% tags=["nbval-check-output"]
def learn(total):
    return f"rank {rank} now knows {total}"

ranks.run(learn, sum(numbers))

# %% [markdown]
# It works. But everything passed through one place, the notebook. With 2 numbers that is fine. With the
# gradients of a large model and 64 ranks, everybody would wait for the one in the middle.

# %% [markdown]
# ## Add up their numbers with all_reduce
#
# [`all_reduce`](../docs/glossary.md#all_reduce) is a **[collective](../docs/glossary.md#collective)**: an
# operation that all ranks call together. Every rank gives a tensor. Afterwards the tensor of every rank holds
# the sum.

# %%
mgpu.predict("00/all-reduce", int, answer=...,
             question="Rank 0 holds 1, rank 1 holds 2. What does rank 0 hold afterwards?")

# %% tags=["nbval-check-output"]
# %%ranks
dist.all_reduce(mine)
print("I hold", mine.item())

# %%
after = ranks.run(my_number)
mgpu.reveal("00/all-reduce", int(after[0]), "Rank 1 holds the same.")

# %%
mgpu.plots.values_on_ranks(numbers, after);

# %% [markdown]
# `all_reduce` changed `mine` in place: run that cell a second time, and each rank holds 6. Nearly
# all of multi-GPU training is built from this one operation. In lesson 09 you build from it what PyTorch
# itself uses to train on many devices.

# %% [markdown]
# ## Measure both ways
#
# How long does one addition take: by hand through the notebook, and with `all_reduce` between the ranks?
# Each is done three times for [warm-up](../docs/glossary.md#warm-up), which does not count, and then measured
# 20 times.

# %%
from mgpu_utils.timing import measure

by_hand = measure(lambda: ranks.run(learn, sum(ranks.run(my_number))), repeats=20)
print(by_hand)

# %%
def time_all_reduce():
    number = torch.ones(1, device=device)
    return measure(lambda: dist.all_reduce(number), repeats=20, device=device).median

medians = ranks.run(time_all_reduce)
print([f"{seconds * 1e3:.3g} ms" for seconds in medians], "on rank 0 and rank 1")

# %% [markdown]
# A collective is finished when the last rank has finished, so the slower rank sets the time. All
# measurements in this course are reported like that.

# %%
ratio = by_hand.median / max(medians)
print(f"all_reduce was {ratio:.0f} times faster than the way through the notebook")

# %% [markdown]
# Run the three cells again and you get other numbers: the ranks share this machine with everything else
# that runs on it. That is why the course repeats its measurements and shows how far they spread.

# %% [markdown]
# ## Verdict on the claim

# %%
mgpu.reveal("00/need-gpus", "only the speed")

# %% [markdown]
# Two real processes formed a group, ran your code, and added their numbers with the operation that GPU
# jobs use. What a machine without GPUs cannot show you is the *speed* of GPUs and of the links between
# them. Everything else is here: who holds what, who waits for whom, what is sent, and how it breaks. The
# course measures speed as well, and always says of which devices.

# %% [markdown]
# ## Exercises
#
# A check tells you what is wrong, but not the answer. `mgpu.hint("00/average")` gives one hint at a time.
#
# ### Exercise 1: the mean of all ranks (5 minutes, difficulty 1 of 3)
#
# Each rank gets a different `number`. Return the **mean** over all ranks, on every rank. The check runs
# your function on the two ranks and compares with the mean computed here, by one process.

# %%
def average(number):
    total = torch.tensor(number, device=device)
    ### BEGIN SOLUTION
    dist.all_reduce(total)
    return (total / world_size).item()
    ### END SOLUTION

mgpu.check("00/average", average, ranks=ranks)

# %% [markdown]
# ### Exercise 2: the slowest rank (3 minutes, difficulty 1 of 3)
#
# Each rank measured how many `seconds` its work took. Return the time of the slowest rank, on every rank.
# `all_reduce` can do more than add: it takes an operation, `op=dist.ReduceOp.SUM` unless you name another.

# %%
def slowest(seconds):
    worst = torch.tensor(seconds, device=device)
    ### BEGIN SOLUTION
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()
    ### END SOLUTION

mgpu.check("00/slowest", slowest, ranks=ranks)

# %% [markdown]
# ## Break it: a rank that does not join
#
# A collective ends when *every* rank has called it. What if one never does? Below, only rank 0 calls
# `all_reduce`, and waits for rank 1. Left alone it would wait for many minutes. You allow it 3 seconds.
#
# This cell ends in an error. That is its purpose.

# %% tags=["raises-exception"]
ranks.timeout = 3.0

def only_rank_0_adds():
    if rank == 0:
        dist.all_reduce(torch.ones(1, device=device))
    return "finished"

ranks.run(only_rank_0_adds)

# %% [markdown]
# Read it from the top. The group did not finish in time. Then one line a rank: one waits inside
# `all_reduce`, the other has long finished. Then the rule that was broken, and what to do. You will meet
# this message again, because everybody writes this mistake: a collective under `if rank == 0:`.
#
# A rank inside a collective cannot be woken up, so it was ended. Start the group afresh:

# %% tags=["nbval-check-output"]
ranks.timeout = 60.0
ranks.restart()
ranks.run(lambda: dist.get_world_size())

# %% [markdown]
# Two ranks, and both know it. They are new processes, so `mine` is gone on both. Your notebook kept all
# its variables.
#
# The other thing that happens is an ordinary error. It names the rank and your line:

# %% tags=["raises-exception"]
# %%ranks
if rank == 1:
    share = 1 / (world_size - 2)

# %% [markdown]
# After an error like this one the ranks are still there, and no restart is needed.

# %% [markdown]
# ## Shut down
#
# The ranks end when you say so, when you start another group, when you restart this notebook's kernel,
# and also when its kernel is killed. You cannot leave any behind.

# %% tags=["nbval-check-output"]
ranks.shutdown()

with mgpu.start_ranks(2) as ranks:
    print(ranks.run(lambda: f"rank {rank} of {world_size}"))

# %% [markdown]
# The `with` form shuts down by itself, also after an error.

# %% [markdown]
# ## Your progress
#
# Predictions, tries and exercises that are right are kept in a small file beside this notebook. It is yours:
# nothing is sent anywhere. Here is what it holds, on the map of the ten steps. Run this cell in any lesson.

# %%
from mgpu_utils.progress_map import my_progress

my_progress()

# %% [markdown]
# In a terminal, `mgpu progress` shows the same, `mgpu progress --export mine.csv` writes it out, and
# `mgpu progress --reset` forgets it.

# %% [markdown]
# ## Where to get help
#
# - **A cell on the ranks hangs.** Wait for the timeout (60 seconds, unless you set `ranks.timeout`), or
#   press the stop button. Then call `ranks.restart()`.
# - **Something is odd.** *Kernel*, *Restart Kernel and Run All Cells*. Each lesson runs from top to
#   bottom in less than a minute, also with no exercise solved.
# - **An exercise.** `mgpu.hint("00/average")`, again for the next hint.
# - **A name of the course.** `mgpu.start_ranks?` shows what it does, takes and raises.
# - **A name of PyTorch.** `torch.distributed.all_reduce?`, or its page on
#   [docs.pytorch.org](https://docs.pytorch.org/docs/stable/distributed.html).

# %% [markdown]
# ## On real GPUs
#
# With two or more GPUs this notebook runs unchanged. Each rank then drives one GPU, `device` is `cuda:0`
# on rank 0 and `cuda:1` on rank 1, and `nccl` carries the sum over the link between the cards. A rank
# that does not join freezes the others there in just the same way.

# %% [markdown]
# ## Recap
#
# 1. You started two ranks, and both said hello: a rank is a process with a number, and each line tells
#    whose it is.
# 2. You added their numbers by hand and with `all_reduce`: every rank ends up with the sum.
# 3. You ran your own functions on every rank: `ranks.run` gives one result a rank.
# 4. You froze the ranks: a collective that one rank never calls waits for ever. You read who waits for
#    whom, and brought them back with `ranks.restart()`.
#
# **One step further.** You added up one number. How long does it take for a million of them, or for a whole
# model? [Measure collectives](../benchmarks/04_measure_collectives.ipynb) draws it for *this* machine. Next:
# [01 Check the devices](01_check_the_devices.ipynb).
