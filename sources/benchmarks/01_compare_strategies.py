# %% [markdown]
# # Compare strategies
#
# One process, `DataParallel` and `DistributedDataParallel` train the same models on **this** machine. You
# see how many samples a second each of them gets through, with intervals, beside two lines:
#
# - the **ideal**: N times what one device does;
# - the **limit**: N independent jobs at once, which never talk to each other. No data-parallel method can beat that
#   here, because devices share memory bandwidth, power and links.
#
# **You need** two CPU cores or two GPUs; no cell differs between them. From a shell:
# `mgpu bench --config benchmarks/configs/compare.yaml --out results/compare`.

# %% [markdown]
# ## What to measure
#
# `config` names a file in `configs/`. `steps` 0 and an empty `world_sizes` leave what that file says;
# `quick` measures one round of two steps, only to see that everything runs.

# %% tags=["parameters"]
config: str = "configs/laptop.yaml"
out: str = "results/laptop"
steps: int = 0
world_sizes: list = []
quick: bool = False
resume: bool = False

# %% [markdown]
# Every value is checked and converted before anything is measured. This is the configuration in effect:

# %%
from mgpu_utils import benchmark

settings = benchmark.from_parameters(
    config=config, out=out, steps=steps, world_sizes=world_sizes, quick=quick, resume=resume
)
print(settings)

# %% [markdown]
# On what: a result without its machine says nothing.

# %%
settings.environment

# %% [markdown]
# ## The plan
#
# One row is one configuration. **Weak** scaling keeps the batch of each device, so more devices take a
# larger global batch; **strong** scaling keeps the global batch and shares it out. The two answer different
# questions and never stand in one table.
#
# Look at the threads: two ranks with one thread each use two cores, so one process with *two* threads is
# measured too. Against a process that leaves a core idle, anything looks fast.

# %%
benchmark.plan_table(settings)

# %% [markdown]
# ## Measure
#
# Each run starts fresh processes, throws its warm-up away, waits until all ranks are ready, and is as slow
# as its slowest rank. A round holds every configuration once, in shuffled order, so that a machine which
# gets warm slows all of them down alike.

# %%
records = benchmark.measure(settings)

# %% [markdown]
# Runs that failed are named here with their reason; the others go on without them.

# %%
for line in benchmark.failures(records) or [f"all {len(records)} runs went well"]:
    print(line)

# %% [markdown]
# ## Results
#
# `speedup` is over one process with one thread, `same threads` over one process with as many threads in all.
# `efficiency` is the speed-up over N, `of limit` the share of what N independent jobs reach, `peak MiB each` the most
# memory that each process held (on GPUs: that PyTorch allocated on each of them, device 0 of DataParallel first).
# Ratios are taken round by round; brackets hold 95 % intervals, or with fewer than five rounds the range of all.

# %%
tables = benchmark.summarise_each(records)
for scaling, table in tables.items():
    print(f"{scaling} scaling")
    display(benchmark.short_table(table))

# %% [markdown]
# The figure and the whole table are written to `out` as well.

# %%
figures = benchmark.write(settings, records)

# %% [markdown]
# ## In words

# %%
for line in benchmark.findings(settings, records):
    print(line)

# %% [markdown]
# **How to read it.** What separates a strategy from the *limit* line is what its communication and its
# copies cost. What separates the limit from the *ideal* line is this machine, and no change of strategy
# brings it back.
#
# **One step further:** give the small model a larger batch in a configuration of your own, and watch DDP
# move towards the limit: the all-reduce sends the same bytes, but less often for each sample.
