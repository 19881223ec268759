# %% [markdown]
# # Feed every device
#
# In lesson 02 you cut the model. From here on each device holds a whole model, and the *batch* is cut. So
# every device needs data of its own, and in time.
#
# **You'll do**
#
# 1. load batches by hand, then with a `DataLoader`, and find out which process loads them
# 2. measure when loading holds up training, and hide it behind training
# 3. give each rank its own shard, by hand and with `DistributedSampler`, and look at who gets which sample
# 4. count what padding does to an accuracy, and get the exact one
# 5. look after the seeds of ranks and workers
#
# **You'll learn** what workers do and what they do not, why shards repeat samples, and what `set_epoch` is
# for.
#
# **You need** about 55 minutes, two CPU cores, and lessons 00 to 02. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > `DataLoader` loads batches in parallel.
#
# Do you believe it? Commit yourself to two numbers before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("03/processes", int, answer=...,
             question="A DataLoader with default settings: how many extra processes load for it?")

# %%
mgpu.predict("03/different", int, answer=..., question="Two ranks each run DataLoader(digits, "
             "batch_size=32). How many different samples do both together load in the first step?")

# %% [markdown]
# ## By hand: one loop
#
# A dataset gives single samples. Somebody has to collect them and stack them into a batch:

# %%
import os
import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset, default_collate

def by_hand(dataset, batch_size):
    for start in range(0, len(dataset), batch_size):
        stop = min(start + batch_size, len(dataset))
        yield default_collate([dataset[i] for i in range(start, stop)])

# %% [markdown]
# A `DataLoader` with default settings gives the same batches:

# %% tags=["nbval-check-output"]
digits = mgpu.digits(train=True)
pairs = zip(by_hand(digits, 64), DataLoader(digits, batch_size=64))
equal = [torch.equal(mine[0], theirs[0]) for mine, theirs in pairs]
print(len(equal), "batches, all the same:", all(equal))

# %% [markdown]
# ## Who loads?
#
# Real data lies on a disk, and has to be read and decoded. So let each sample take 0.3
# milliseconds: `WatchedDataset` sleeps that long, as a process does that waits for a disk. It also notes
# who loaded the sample and when. Ten batches of 64 will do.

# %% tags=["nbval-check-output"]
from mgpu_utils.watched_data import WatchedDataset

slow = WatchedDataset(Subset(digits, range(640)), seconds=0.0003)
(images, labels), visits = next(iter(DataLoader(slow, batch_size=64)))
print(tuple(images.shape), tuple(labels.shape), "and one note a sample:", tuple(visits.shape))

# %% [markdown]
# The first number of a note is the process that loaded the sample.

# %% tags=["nbval-check-output"]
def loaded_by(workers):
    loader = DataLoader(slow, batch_size=64, num_workers=workers)
    return {int(process) for _, visits in loader for process in visits[:, 0]}

for workers in (0, 2):
    found = loaded_by(workers)
    print(f"num_workers={workers}: {len(found - {os.getpid()})} extra processes,",
          "loaded in this notebook:", os.getpid() in found)

# %%
extra = len(loaded_by(0) - {os.getpid()})
mgpu.reveal("03/processes", extra, "num_workers is 0 unless you say otherwise.")

# %% [markdown]
# With default settings nothing is parallel. The loop that trains also loads, one sample after the other.
# With `num_workers=2` two **[workers](../docs/glossary.md#worker)** load: processes that do nothing else. (They
# are not ranks: they join no collective.)

# %% [markdown]
# ## Measure: who waits for whom
#
# Now a training step that needs the data. It gets one thread, so that a core is left for the workers.
# `loss.item()` waits for the device, so that the clock is read when the step is really over.

# %%
from torch.nn.functional import cross_entropy

here = mgpu.plan().single_device
model = mgpu.digits_cnn(seed=0).to(here)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.set_num_threads(1)

def step(batch):
    images, labels = (tensor.to(here) for tensor in batch)
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()

# %% [markdown]
# `watch_epoch` runs `step` on each batch and keeps all times. The three settings take turns, so that a busy
# moment of the machine hits all of them. Starting workers takes time of its own: `persistent_workers=True`
# keeps them from round to round, and the first round does not count.

# %%
from mgpu_utils.watched_data import watch_epoch

loaders = {n: DataLoader(slow, batch_size=64, num_workers=n, persistent_workers=n > 0)
           for n in (0, 1, 2)}
rounds = [{n: watch_epoch(loader, step) for n, loader in loaders.items()} for _ in range(6)][1:]

# %% [markdown]
# Five rounds are left. Draw the middle one of each setting, neither the fastest nor the slowest.

# %%
def seconds(recording):
    return recording.seconds

recordings = {f"num_workers={n}": sorted((r[n] for r in rounds), key=seconds)[2] for n in loaders}

# %%
mgpu.plots.loading_timeline(recordings);

# %% [markdown]
# Read the top lane: the notebook loads, trains, loads, trains. While it trains nothing is loaded, and while
# it loads the device has nothing to do. With one worker, batch 1 is loaded while the notebook trains on
# batch 0. With two workers, two batches are under way at any time. White space in the notebook's lane is
# a device that waits for data.

# %%
for name, recording in recordings.items():
    busy = recording.training_seconds / recording.seconds
    print(f"{name}: {recording.seconds * 1e3:4.0f} ms, the device worked for {busy:.0%} of it")

# %% [markdown]
# ### How far ahead do workers go?
#
# Not as far as they can: batches that wait take memory. Each worker is handed `prefetch_factor` batches
# in advance, 2 by default. Here is a step that takes far longer than loading. How many batches were
# begun by the time the first step was over?

# %%
import time

fast = WatchedDataset(Subset(digits, range(640)))
for factor in (2, 4):
    loader = DataLoader(fast, batch_size=64, num_workers=1, prefetch_factor=factor)
    recording = watch_epoch(loader, lambda batch: time.sleep(0.03))
    ahead = sum(began < recording.steps[0][1] for _, began, _ in recording.loads)
    print(f"prefetch_factor={factor}: {ahead} of {len(recording.loads)} batches begun")

# %% [markdown]
# The batch in use, and `prefetch_factor` more. A larger factor helps when load times vary. It does not
# make loading faster.

# %% [markdown]
# ### When loading is not the bottleneck
#
# The digits lie in memory and are quick to load. Time one [epoch](../docs/glossary.md#epoch) of loading alone,
# without a model:

# %%
from functools import partial
from mgpu_utils.timing import measure

for workers in (0, 2):
    loader = DataLoader(digits, batch_size=64, num_workers=workers, persistent_workers=workers > 0)
    print(f"num_workers={workers}:", measure(partial(list, loader), warmup=1, repeats=5))

# %% [markdown]
# Each batch of a worker has to travel to the notebook's process. When there is nothing to wait for, this
# trip can cost more than it saves. So measure before you set `num_workers`. The running example of this
# course uses 0.

# %% [markdown]
# ### The last metre: from memory to the device
#
# A GPU fetches a batch from the computer's memory. It can do so while the program goes on
# (`non_blocking=True`), provided that the memory is **[pinned](../docs/glossary.md#pinned-memory)**, which means
# that the system may not move it. `DataLoader(..., pin_memory=True)` does that.

# %%
batch = torch.rand(64, 3, 224, 224)
kinds = {"ordinary": batch}
if here.type == "cuda":
    kinds["pinned"] = batch.pin_memory()
for kind, tensor in kinds.items():
    copy = partial(tensor.to, here, non_blocking=True)
    print(f"{kind} memory to {here}:", measure(copy, device=here))
print("a copy was made:", batch.to(here) is not batch)

# %% [markdown]
# Where the device is the CPU there is no copy, and nothing to pin. The loaders of this course pin when
# the device is a GPU.

# %% [markdown]
# ## Several ranks: does it shard?
#
# Now two ranks, each with a `DataLoader` of its own. To see who loads what, the dataset holds nothing but
# the numbers 0 to 20: 21 samples, and a batch shows which ones it holds.

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
numbers = range(21)

def plain():
    loader = DataLoader(numbers, batch_size=4)
    return [batch.tolist() for batch in loader]

first_batches = ranks.run(lambda: f"rank {rank} of world_size {world_size}: {plain()[0]}")
print(*first_batches, sep="\n")

# %% [markdown]
# Both ranks load the same samples. A `ShardMap` draws which sample went where:

# %%
from mgpu_utils.shard_map import ShardMap

ShardMap(ranks.run(plain), samples=21)

# %% [markdown]
# Every sample of rank 1 is a repeat. Two devices do the same work, and you have gained nothing. Nothing
# warns you: each loader is a good loader, and knows of no other.

# %% tags=["nbval-check-output"]
def first_step():
    return next(iter(DataLoader(range(1437), batch_size=32))).tolist()

together = ranks.run(first_step)
different = len({sample for batch in together for sample in batch})
print(sum(map(len, together)), "samples loaded in the first step,", different, "of them different")

# %%
mgpu.reveal("03/different", different)

# %% [markdown]
# ### Shards by hand
#
# In lesson 02 a shard was a rank's slice of a tensor. From now on it is the part of the *data* that this rank
# sees. Deal the samples out like cards, one to each rank in turn: a slice with a step.

# %%
def dealt():
    mine = numbers[rank::world_size]
    return [batch.tolist() for batch in DataLoader(mine, batch_size=4)]

by_hand_map = ShardMap(ranks.run(dealt), samples=21)
by_hand_map

# %% [markdown]
# Each sample once. But 21 samples do not divide by two: rank 0 has 11, and rank 1 has 10. Here both take
# 3 steps. With 17 samples rank 0 would take 3 and rank 1 only 2, and in a training job rank 0 would wait
# in its third step for a partner that has finished. You met that in lesson 00.

# %% [markdown]
# ### The real one: DistributedSampler
#
# PyTorch's `DistributedSampler` deals in the same way. It asks the process group for `rank` and
# `world_size`. What does it do about the odd sample?

# %%
def sampled(drop_last=False):
    sampler = DistributedSampler(numbers, shuffle=False, drop_last=drop_last)
    return [batch.tolist() for batch in DataLoader(numbers, batch_size=4, sampler=sampler)]

padded = ShardMap(ranks.run(sampled), samples=21)
padded

# %% tags=["nbval-check-output"]
print(padded)
print()
print("with drop_last=True, never loaded:", ShardMap(ranks.run(sampled, True), 21).missing)

# %% [markdown]
# It **[pads](../docs/glossary.md#padding)**: to give each rank 11 samples it starts again from the front,
# and sample 0 is used twice. With `drop_last=True` it leaves a sample out instead. Both keep the ranks in
# step. For training one repeat in an epoch does no harm. For an accuracy it does.

# %% [markdown]
# ## What padding does to an accuracy
#
# Take a model that is right on sample 0 and wrong on the other 20. Its accuracy is 1/21. Let the ranks
# count, and add up their counts: once with `DistributedSampler`, once with the loader of this course.
#
# That loader belongs to a **[strategy](../docs/glossary.md#strategy)**, an object that knows how a training job
# uses its devices. `mgpu.DistributedDataParallel()` is the strategy for DDP. Lesson 06 shows what else it knows.

# %%
def count(loader):
    counts = torch.zeros(2, device=device)
    for batch in loader:
        counts += torch.tensor([(batch == 0).sum(), len(batch)], device=device)
    dist.all_reduce(counts)
    return [int(number) for number in counts]

def count_padded():
    return count(DataLoader(numbers, batch_size=4, sampler=DistributedSampler(numbers, shuffle=False)))

def count_exactly():
    return count(mgpu.DistributedDataParallel().loader(numbers, batch_size=8))

# %% tags=["nbval-check-output"]
for name, counted in [("DistributedSampler", count_padded), ("the course's loader", count_exactly)]:
    right, seen = ranks.run(counted)[0]
    print(f"{name:20} {right} right of {seen} seen: accuracy {right / seen:.4f}")
print(f"{'the truth':20} {1 / 21:.4f}")

# %% [markdown]
# The one lucky sample was counted twice, and the accuracy nearly doubled. In a real test set of thousands
# the error is small. It also changes with the number of ranks, so two machines report different
# accuracies for the same model.
#
# What does the course's loader do?

# %%
def course():
    loader = mgpu.DistributedDataParallel().loader(numbers, batch_size=8)
    return [batch.tolist() for batch in loader]

ShardMap(ranks.run(course), samples=21)

# %% [markdown]
# Three differences:
#
# - **It never pads.** A rank may get fewer samples in the last step, even none; it still takes the step.
#   So counts are exact, for any number of ranks.
# - **Its batch size is the global batch**, 8 here. `DataLoader` with a `DistributedSampler` wants the
#   [per-device batch](../docs/glossary.md#per_device_batch), 4.
# - **It cuts each global batch into neighbouring pieces.** So both ranks together hold, at each step, what
#   one device would hold at that step. This makes results comparable from one device to many.

# %% tags=["nbval-check-output"]
alone = [batch.tolist() for batch in mgpu.SingleDevice("cpu").loader(numbers, batch_size=8)]
both = [first + second for first, second in zip(*ranks.run(course))]
print("one device, step by step, equals both ranks:", alone == both)

# %% [markdown]
# ## Seeds: what must be the same, and what must not
#
# Many scripts call `torch.manual_seed(0)` on every rank, and for the model that is right. But augmentations
# (random crops, noise) draw random numbers too. The last number of a note is one that was drawn while the
# sample was loaded. Compare two workers of one rank, then one worker of each of two ranks:

# %%
def drawn(seed_of_rank, workers=1, by_rank=False):
    torch.manual_seed(seed_of_rank * rank)
    generator = torch.Generator().manual_seed(rank) if by_rank else None
    loader = DataLoader(WatchedDataset(range(2)), num_workers=workers, generator=generator)
    return [visits[0, 3].item() for _, visits in loader]

# %% tags=["nbval-check-output"]
two_workers = ranks.run(drawn, 0, 2)[0]
print("two workers of a rank draw the same:", two_workers[0] == two_workers[1])
cases = {"same seed": (0,), "rank 1 has another": (1,), "same seed, generator by rank": (0, 1, True)}
for name, how in cases.items():
    first, second = ranks.run(drawn, *how)
    print(f"{name}: workers of two ranks draw the same:", first[0] == second[0])

# %% [markdown]
# PyTorch gives each worker of a rank a seed of its own. The ranks know nothing of each other: with the
# same seed they draw the same noise for different samples, and the batch is less varied than it looks.
# Either set another seed on each rank after the model is built, or hand the loader a `generator` seeded
# with the rank. The course's loader does the latter.
#
# The order of the samples is the opposite case: it **must** come from one seed. `DistributedSampler` takes
# it from its argument `seed`, and `torch.manual_seed` does not touch it. Give each rank another one:

# %% tags=["nbval-check-output"]
def shuffled(seed_of_rank):
    sampler = DistributedSampler(numbers, shuffle=True, seed=seed_of_rank * rank)
    return [list(sampler)]

for seed_of_rank in (0, 1):
    shards = ShardMap(ranks.run(shuffled, seed_of_rank), samples=21)
    print(f"rank 1 has seed {seed_of_rank}: {len(shards.repeated)} repeated, {len(shards.missing)} never loaded")

# %% [markdown]
# With one seed, only the padding is repeated. With two, each rank deals from a pack of its own.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
none, two = (recordings[f"num_workers={workers}"].seconds * 1e3 for workers in (0, 2))
print(f"{extra} extra processes by default; an epoch of slow samples took {none:.0f} ms with 0 workers and "
      f"{two:.0f} ms with 2; two ranks loaded {different} different samples where 64 were meant")

# %% [markdown]
# **Half true.** A `DataLoader` loads in parallel once you give it workers, and it never shards.
#
# Workers hide loading behind training, as far as there is something to hide. Sharing the data out over
# ranks is the work of a sampler, and the sampler that PyTorch has for it repeats or drops samples where
# they do not divide.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: audit the shards (6 minutes, difficulty 1 of 3)
#
# `shards` holds one list of sample numbers a rank, for a dataset with the samples 0 to `samples` - 1. Return
# two sorted lists: the samples that no rank has, and the samples that are there more than once (each
# named once).

# %%
def audit(shards, samples):
    ### BEGIN SOLUTION
    visited = [sample for shard in shards for sample in shard]
    missing = sorted(set(range(samples)) - set(visited))
    repeated = sorted({sample for sample in visited if visited.count(sample) > 1})
    return missing, repeated
    ### END SOLUTION

mgpu.check("03/audit", audit)

# %% [markdown]
# ### Exercise 2: the smallest number of workers (5 minutes, difficulty 1 of 3)
#
# Loading a batch takes one worker `load_ms` milliseconds. A training step takes `step_ms`. Return the
# smallest number of workers that keeps the device supplied once the first batch is there.

# %%
def workers_needed(load_ms, step_ms):
    ### BEGIN SOLUTION
    return -(-load_ms // step_ms)
    ### END SOLUTION

mgpu.check("03/workers", workers_needed)

# %% [markdown]
# Does your rule hold on this machine? Measure a load and a step, and look at the timeline. The rule counts
# on workers that only wait. Workers that compute also need a core each, and PyTorch warns when there are
# more of them than cores.

# %% tags=["solution"]
load = max(ended - began for _, began, ended in recordings["num_workers=1"].loads)
wanted = int(workers_needed(load, load / 2))
loader = DataLoader(slow, batch_size=64, num_workers=wanted, persistent_workers=True)
recording = [watch_epoch(loader, lambda batch: time.sleep(load / 2)) for _ in range(2)][1]
mgpu.plots.loading_timeline({f"num_workers={wanted}": recording});

# %% [markdown]
# ### Exercise 3: an exact accuracy (12 minutes, difficulty 2 of 3)
#
# Each rank calls `exact_accuracy` with its own copy of the same `model` and the same `dataset`. Return the share of
# samples that the model gets right, the same number on every rank. Each sample counts once, for any length
# of the dataset. The check compares with one device that sees them all. The lines given pad; change what
# you like.

# %%
def exact_accuracy(model, dataset):
    sampler = DistributedSampler(dataset, shuffle=False)
    ### BEGIN SOLUTION
    dealt = enumerate(sampler)
    mine = [sample for turn, sample in dealt if turn * world_size + rank < len(dataset)]
    counts = torch.zeros(2, device=device)
    for images, labels in DataLoader(Subset(dataset, mine), batch_size=64):
        right = model(images.to(device)).argmax(dim=1) == labels.to(device)
        counts += torch.tensor([right.sum(), len(right)], device=device)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()
    ### END SOLUTION

mgpu.check("03/accuracy", exact_accuracy, ranks=ranks)

# %% [markdown]
# ## Break it: set_epoch forgotten
#
# `DistributedSampler` shuffles. Each epoch gets a new order, or does it?

# %%
mgpu.predict("03/seen", int, answer=..., unit="%", question="Two ranks train for 6 epochs, and "
             "nobody calls set_epoch. What share of the data does rank 0 meet?")

# %% tags=["nbval-check-output"]
def first_of_two_epochs(tell):
    sampler = DistributedSampler(numbers, shuffle=True)
    orders = []
    for epoch in range(2):
        if tell:
            sampler.set_epoch(epoch)
        orders.append(list(sampler)[:6])
    return orders

for tell in (False, True):
    print(f"set_epoch called: {tell!s:5}  rank 0 begins with", *ranks.run(first_of_two_epochs, tell)[0])

# %% [markdown]
# Without `set_epoch` the second epoch repeats the first, in the same order. There is no error. But the
# order is not the worst of it. Which samples does rank 0 meet at all?

# %%
def share_seen(tell, epochs=6):
    sampler, met, shares = DistributedSampler(digits, shuffle=True), set(), []
    for epoch in range(epochs):
        if tell:
            sampler.set_epoch(epoch)
        met |= set(sampler)
        shares.append(len(met) / len(digits))
    return shares

shares = {name: ranks.run(share_seen, tell)[0]
          for name, tell in [("with set_epoch", True), ("set_epoch forgotten", False)]}

# %%
mgpu.plots.samples_seen(shares);

# %%
mgpu.reveal("03/seen", round(100 * shares["set_epoch forgotten"][-1]), unit="%")

# %% [markdown]
# Each rank is dealt the same half of the data, for ever, and each step sees the same samples in every epoch.
# Shuffling has become a single shuffle at the start.
#
# The cure is one line at the start of each epoch, on every rank: `sampler.set_epoch(epoch)`. The training
# loop of this course does it for you:

# %% tags=["nbval-check-output"]
def two_epochs():
    loader = mgpu.DistributedDataParallel().loader(numbers, batch_size=8, shuffle=True)
    orders = []
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        orders.append([batch.tolist() for batch in loader])
    return orders

maps = [ShardMap(batches, samples=21) for batches in zip(*ranks.run(two_epochs))]
print("same order twice:", maps[0].batches == maps[1].batches)
print("missing or repeated:", [shards.missing + shards.repeated for shards in maps])

# %%
ranks.shutdown()

# %% [markdown]
# ## On real GPUs
#
# - A step takes a fraction of the time, so loading is more often the bottleneck. Look at the share of time
#   in which the device works before you look at anything else.
# - Workers are started *by each rank*: 8 ranks with 4 workers are 32 processes, which share the cores of one
#   machine.
# - Pinned memory and `non_blocking=True` let the copy of the next batch overlap with the present step.

# %% [markdown]
# ## Recap
#
# 1. You loaded batches by hand and with a `DataLoader`: with default settings your own process loads.
# 2. You measured who waits for whom: workers hide loading, and cost time where there is nothing to hide.
# 3. You gave each rank its own shard: a plain `DataLoader` on every rank loads the same samples everywhere,
#    and `DistributedSampler` deals them out, padding until they divide.
# 4. You counted what padding does to an accuracy, and got the exact one from shards that are not padded.
# 5. You looked after the seeds: one for the order, the same everywhere; another on each rank for everything
#    random inside the samples. And `set_epoch` at every epoch.
#
# **One step further.** How many workers, and which batch, suit *this* machine best?
# [Tune](../benchmarks/05_tune.ipynb) measures it. Next: [04 Initialise and place the
# model](04_initialise_and_place_the_model.ipynb).
