# %% [markdown]
# # Tune
#
# Five knobs change how fast a training run is: the batch of each device, the size of DDP's buckets, the workers of
# the DataLoader, the precision, the threads of a rank. This notebook turns one knob at a time and draws throughput
# against its value. The batch and the precision change the training, too; that is for the lessons, here only speed
# counts.
#
# In each curve the **knee** is marked: the smallest value that reaches 97 % of the best. Larger values cost more
# (memory, processes, fewer updates from the same data) and bring almost nothing. With fewer than five rounds there
# is no knee: the best value may be chance.
#
# **You need** two CPU cores or two GPUs; no cell differs between them. From a shell:
# `mgpu bench --config benchmarks/configs/laptop.yaml --out results/laptop --only tune`.

# %% [markdown]
# ## What to measure
#
# `config` names a file in `configs/` with a section `tune`. `quick` measures one round of two steps, only to see that
# everything runs.

# %% tags=["parameters"]
config: str = "configs/laptop.yaml"
out: str = "results/laptop/tune"
quick: bool = False
resume: bool = False

# %%
from mgpu_utils import benchmark

settings = benchmark.from_parameters("tune", config=config, out=out, quick=quick, resume=resume)
print(settings)

# %% [markdown]
# One row is one run: the base with one knob turned.
#
# - **Batch.** A step sends the same gradients however many samples it has. A larger batch sends them less often.
# - **Buckets.** Small buckets start early and pay the latency each time. Large ones wait until backward is nearly over.
# - **Workers.** These runs load through a DataLoader whose samples take `load_ms` each. Enough workers hide that.
# - **Threads.** More threads a rank means fewer ranks: every point uses the same cores.

# %%
benchmark.plan_table(settings)

# %% [markdown]
# ## Measure

# %%
records = benchmark.measure(settings)
for line in benchmark.failures(records) or [f"all {len(records)} runs went well"]:
    print(line)

# %% [markdown]
# ## Results

# %%
table = settings.kind.summarise(records)
table[["knob", "value", "world_size", "samples_per_second", "of_best", "of_best_low", "of_best_high", "knee"]]

# %%
figures = benchmark.write(settings, records)

# %% [markdown]
# ## In words

# %%
for line in benchmark.findings(settings, records):
    print(line)

# %% [markdown]
# **How to read it.** A flat curve is an answer, too: that knob does not matter for this model on this machine. Do
# not carry a knee over to another model; measure again.
#
# A larger batch is not free. Past some size the same number of samples teaches the model less: [lesson
# 07](../notebooks/07_choose_the_optimizer.ipynb) shows it on the digits.
#
# **On real GPUs** two knobs change character. bfloat16 runs on tensor cores and is usually the largest gain of
# all; on a CPU without bfloat16 units it can be slower than float32. And workers matter more, because a GPU eats
# batches faster.
#
# **One step further:** put a model of your own batch size and steps into the section `tune` of a configuration
# file, and look where its knees lie.
