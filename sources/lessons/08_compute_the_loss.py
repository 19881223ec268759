# %% [markdown]
# # Compute the loss on several devices
#
# In lesson 07 the optimizer needed the same gradient on every rank. A gradient comes from a loss, and each rank
# computes its own.
#
# **You'll do**
#
# 1. compute one loss on each rank, and combine the losses before `backward()`
# 2. count what DDP sends in each part of a step
# 3. compare mean and sum losses, for equal and for uneven shards
# 4. make the loss right for uneven batches and for ignored labels
# 5. log the loss of the whole global batch, and measure what logging costs
#
# **You'll learn** where the losses of several devices meet, what to divide a loss by, and why a mean of
# means is not the mean.
#
# **You need** about 55 minutes, two CPU cores, and lessons 00 to 07. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > Compute the loss on each GPU, and combine the losses before you call `backward()`.
#
# Do you believe it? Commit yourself before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("08/meet", ["before backward()", "during backward()", "never"], answer=...,
             question="When does DistributedDataParallel combine the losses of its ranks?")

# %% [markdown]
# ## Two ranks, one batch
#
# The running example: a global batch of 64 digits. Each rank takes its shard, as in lesson 03.

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
ranks.run(lambda: f"rank {rank} of world_size {world_size} is ready")

# %% tags=["nbval-check-output"]
# %%ranks
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.allow_tf32 = False  # full precision on GPUs, to compare results
images, labels = (tensor.to(device) for tensor in mgpu.digits(train=True)[:64])
x, y = images.chunk(world_size)[rank], labels.chunk(world_size)[rank]
print(tuple(x.shape), tuple(y.shape))

# %% [markdown]
# ## By hand, as the claim says
#
# First the loss of each rank, and the gradient which that loss alone gives. The model is not wrapped in
# anything yet. (`gradient_of` is the function of lesson 05: all gradients in one tensor.)

# %%
# %%ranks
from mgpu_utils.gradient_agreement import compare_gradients, gradient_of

model = mgpu.digits_cnn(seed=0).to(device)
loss = cross_entropy(model(x), y)
own_loss = loss.item()
loss.backward()
own_gradient = gradient_of(model)
print(f"my loss: {own_loss:.4f}")

# %% [markdown]
# Now the claim: the same loss again, but combined before `backward()`. `all_reduce` adds the two numbers,
# and a division makes the mean of them. PyTorch has something to say about it, so keep its warning.

# %%
# %%ranks
import warnings

model.zero_grad()
loss = cross_entropy(model(x), y)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.all_reduce(loss)
    loss = loss / world_size
    loss.backward()
combined_loss = loss.item()

# %%
losses = ranks.run(lambda: (own_loss, combined_loss))
mgpu.plots.values_on_ranks(*zip(*losses), "combining").set_ylabel("loss");

# %% [markdown]
# Both ranks hold the same loss, and it is the loss of all 64 samples. So far it looks good. Do they hold
# the same gradient, too?

# %% tags=["nbval-check-output"]
# %%ranks
print(str(compare_gradients(model)).split(":")[0])

# %% [markdown]
# No. What does a rank hold, then? Divide it by the gradient of the rank's own loss:

# %% tags=["nbval-check-output"]
# %%ranks
def ratio(found, wanted):
    return round(((found @ wanted) / (wanted @ wanted)).item(), 3)

factor = ratio(gradient_of(model), own_gradient)
print("my gradient is my own one times", factor)
print("nothing else in it:", torch.allclose(gradient_of(model), factor * own_gradient, atol=1e-6))

# %% [markdown]
# Each rank holds its own gradient, made smaller by the division. Nothing of the other rank's 32 samples
# is in it. `all_reduce` added two *numbers*. The graph behind the number, through which `backward()`
# walks, is still that of this rank alone. That is what the warning was about:

# %%
# %%rank 0
print(str(caught[0].message).split(". This behavior")[0])

# %% [markdown]
# Two replicas that update with these gradients drift apart, while both report the same loss.

# %% [markdown]
# ## Where DDP lets the losses meet
#
# Take one step of DDP apart, and let `Traffic` (lesson 06) count the bytes of each part.

# %%
# %%ranks
from mgpu_utils.traffic import Traffic

def phase(name, function, *args):
    with Traffic() as traffic:
        result = function(*args)
    sent[name] = traffic.nbytes
    return result

# %% tags=["nbval-check-output"]
# %%ranks
sent = {}
model = DDP(mgpu.digits_cnn(seed=0).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
logits = phase("forward", model, x)
loss = phase("loss", cross_entropy, logits, y)
phase("backward", loss.backward)
phase("optimizer step", optimizer.step)
print(sent)

# %%
phases = ranks.run(lambda: sent)[0]
mgpu.plots.traffic_by_phase(phases, "One step of DDP, digits network");

# %% [markdown]
# All that travels is in `backward()`. Is the loss in there?

# %% tags=["nbval-check-output"]
parameters = sum(p.numel() for p in mgpu.digits_cnn().parameters())
print(f"{phases['backward'] // 4:,} numbers of 4 bytes; the model has {parameters:,} parameters")

# %% [markdown]
# One number for each parameter: these are the gradients. There is no room for a loss.

# %%
mgpu.reveal("08/meet", "never", "Each rank keeps its own loss. The gradients are what is combined.")

# %% [markdown]
# `DataParallel` is the other way round. It gathers the *outputs*, and there is one loss over all of them,
# on the first device. There is nothing to combine, unless the model itself returns a loss (lesson 05).

# %% [markdown]
# ## Is the mean of the gradients the gradient of the mean?
#
# DDP averages the ranks' gradients. Is this what one device would get from the whole batch? A small
# global batch is enough to find out: 8 samples, 4 and 4.

# %%
# %%ranks
def on_one_device(count, **options):
    net = mgpu.digits_cnn(seed=0).to(device)
    cross_entropy(net(images[:count]), labels[:count], **options).backward()
    return gradient_of(net)

def on_ranks(sizes, **options):
    net = DDP(mgpu.digits_cnn(seed=0).to(device))
    mine = torch.arange(sum(sizes), device=device).split(sizes)[rank]
    cross_entropy(net(images[mine]), labels[mine], **options).backward()
    return gradient_of(net)

# %% tags=["nbval-check-output"]
# %%ranks
for reduction in ("mean", "sum"):
    found = on_ranks([4, 4], reduction=reduction)
    wanted = on_one_device(8, reduction=reduction)
    print(f"{reduction} loss, 4 + 4: {ratio(found, wanted)} x the gradient of one device")

# %% [markdown]
# With the mean, which `cross_entropy` takes if you say nothing, DDP gives the gradient of one device.
# With the sum it gives 1 / world_size of it, because a mean of two sums is half of the whole sum.
#
# So what about the learning rate? It belongs to the **global batch** (lesson 07), not to the number of
# ranks. The same global batch on more ranks gives the same gradient, and needs the same rate.
#
# Now split the same 8 samples into 6 and 2.

# %%
mgpu.predict("08/weight", float, answer=...,
             question="How many times as much does a sample on the rank with 2 count, "
                      "compared with one on the rank with 6?")

# %% tags=["nbval-check-output"]
# %%ranks
found, wanted = on_ranks([6, 2]), on_one_device(8)
difference = (found - wanted).abs().max().item()
print("same as one device:", torch.allclose(found, wanted, atol=1e-5))

# %%
print(f"largest difference of an entry: {ranks.run(lambda: difference)[0]:.2g}")

# %% [markdown]
# What went wrong? Ask autograd how much each sample counts. Each rank takes the mean of its own losses,
# and DDP takes the mean over the ranks:

# %%
def sample_weights_of(sizes):
    losses = torch.zeros(sizes[rank], requires_grad=True)
    share = losses.mean() / world_size
    return torch.autograd.grad(share, losses)[0].tolist()

weights = ranks.run(sample_weights_of, [6, 2])
mgpu.plots.sample_weights(weights, "6 + 2 samples: their weights in the mean of two means");

# %%
mgpu.reveal("08/weight", weights[1][0] / weights[0][0],
            "6 samples share one half of the weight, and 2 share the other half.")

# %% [markdown]
# A mean of means is the mean only if all means are taken over equally many samples.

# %% [markdown]
# ## Divide by the right number
#
# The cure has two parts. Take the **sum** over your own samples, so that each sample counts the same.
# Then divide by the **global** number of samples, and multiply by `world_size`, because DDP will divide by
# that once more.

# %% tags=["nbval-check-output"]
# %%ranks
def on_ranks_in_total(sizes):
    net = DDP(mgpu.digits_cnn(seed=0).to(device))
    mine = torch.arange(sum(sizes), device=device).split(sizes)[rank]
    loss_sum = cross_entropy(net(images[mine]), labels[mine], reduction="sum")
    (loss_sum * world_size / sum(sizes)).backward()
    return gradient_of(net)

for sizes in ([6, 2], [15, 14], [1, 0]):
    same = torch.allclose(on_ranks_in_total(sizes), on_one_device(sum(sizes)), atol=1e-5)
    print(sizes, "same as one device:", same)

# %% [markdown]
# `[15, 14]` is the last batch of each epoch of our digits: 1,437 samples are 22 batches of 64, and 29 are
# left. In `[1, 0]` a rank has nothing to do. The sum over no samples is 0, and does no harm. The mean over
# no samples is another matter:

# %% tags=["nbval-check-output"]
# %%ranks
count = [1, 0][rank]
net = mgpu.digits_cnn(seed=0).to(device)
print("my mean loss is nan:", cross_entropy(net(x[:count]), y[:count]).isnan().item())
print("DDP gives", ratio(on_ranks([1, 0]), on_one_device(1)), "x the gradient of one device")

# %% [markdown]
# Rank 1 divides 0 by 0. Its gradient is a zero, which counts as much as that of rank 0: the mean of both is
# half as large as it should be. And the `nan` spoils the global loss in your log.
#
# `strategy.scale_loss(loss_sum, global_count)`, with which `mgpu.train` computes its loss, is the line
# that you have just seen.

# %% [markdown]
# ### Labels that do not count
#
# Equal shards are not enough if some labels are ignored. `cross_entropy` skips each label of -100, and
# divides by the number of the others. In language models most padding is handled like this. Here rank 0
# ignores 24 of its 32 labels, and rank 1 ignores 2:

# %%
# %%ranks
all_labels = labels.clone()
all_labels[:24] = -100
all_labels[32:34] = -100
mine = all_labels.chunk(world_size)[rank]
counted = (mine != -100).sum()
print("labels that count:", counted.item())

# %% tags=["nbval-check-output"]
# %%ranks
def same_as_one_device(reduction, factor):
    one, net = mgpu.digits_cnn(seed=0).to(device), DDP(mgpu.digits_cnn(seed=0).to(device))
    cross_entropy(one(images), all_labels).backward()
    (cross_entropy(net(x), mine, reduction=reduction) * factor).backward()
    return torch.allclose(gradient_of(net), gradient_of(one), atol=1e-5)

total = counted.clone()
dist.all_reduce(total)
print("mean on each rank:       ", same_as_one_device("mean", 1))
print("sum / labels that count: ", same_as_one_device("sum", world_size / total))

# %% [markdown]
# No rank can know the global number of counted labels by itself. So the number has to be added up over
# the ranks: one `all_reduce` of a single number, before `backward()`. If anything is to be combined
# there, it is the *count*, and not the loss.

# %% [markdown]
# ## A loss to look at
#
# What should you print during training? Each rank has the loss of its own shard. The loss of the global
# batch is the sum of all sums, divided by the sum of all counts. Nothing depends on it but your log.
#
# It is not free: one collective, and `.item()`, which waits for the device (lesson 03). Measure both.

# %%
# %%ranks
def step(log):
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    log(loss.detach())

def reduced(loss):
    total = loss.clone()
    dist.all_reduce(total)
    (total / world_size).item()

# %%
def step_times():
    from mgpu_utils.timing import measure
    ways = {"no log": lambda loss: None, "own loss": torch.Tensor.item, "global loss": reduced}
    seconds = {name: [] for name in ways}
    for _ in range(30):
        for name, log in ways.items():
            seconds[name] += measure(lambda: step(log), warmup=1, repeats=1, device=device).seconds
    return {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}

medians = ranks.run(step_times)
for name in medians[0]:
    print(f"{name:12} {max(times[name] for times in medians) * 1e3:6.2f} ms a step")

# %% [markdown]
# The medians of 30 steps, on the slower rank. A CPU has computed the loss by the time you ask for it, so
# there a difference between the first two lines is chance. The global loss costs one more small
# `all_reduce`. Log it every 50 steps, and you will not notice. Or do as `mgpu.train` does: keep the sums on
# the device, and add them up over the ranks once an epoch.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
before = phases["forward"] + phases["loss"]
factors = ranks.run(lambda: factor)
print(f"DDP sent {before} bytes before backward() and {phases['backward']:,} bytes of gradients in it; "
      f"combining the losses first only scaled each rank's own gradient, by {factors[0]}")

# %% [markdown]
# **Half true.** Each rank does compute its own loss, but combining the losses before `backward()` brings no
# gradient from one rank to another.
#
# DDP combines gradients, and `DataParallel` gathers outputs and has one loss only. What has to be agreed
# on before `backward()` is a *count*, where shards are uneven or labels are ignored. A combined loss is for
# the log.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: the last, uneven batch (10 minutes, difficulty 2 of 3)
#
# Write the loss for DDP. Each rank gets the `logits` and `labels` of its own shard, and nobody tells it
# how many samples the other ranks have. DDP then calls `backward()` on what you return. The gradient must
# be that of one device with the mean over all samples, for shards of 32 and 32, of 15 and 14, and of 1
# and 0 samples.

# %%
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def shard_loss(logits, labels):
    ### BEGIN SOLUTION
    total = torch.tensor(float(len(labels)), device=device)
    dist.all_reduce(total)
    return cross_entropy(logits, labels, reduction="sum") * world_size / total
    ### END SOLUTION

mgpu.check("08/uneven", shard_loss, ranks=ranks)

# %% [markdown]
# ### Exercise 2: log the true loss (6 minutes, difficulty 1 of 3)
#
# `loss_sum` is a tensor: the sum of the losses of this rank's samples. `count` is how many they are. Return the
# mean loss of all samples of all ranks, as a plain number, on every rank. Leave `loss_sum` as it is.

# %%
def global_loss(loss_sum, count):
    ### BEGIN SOLUTION
    totals = torch.stack([loss_sum.detach(), torch.tensor(float(count), device=device)])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
    ### END SOLUTION

mgpu.check("08/log", global_loss, ranks=ranks)

# %% [markdown]
# ### Exercise 3: class weights and ignored labels (12 minutes, difficulty 3 of 3)
#
# `cross_entropy(logits, labels, weight=class_weights)` multiplies the loss of each sample by the weight of its
# class. What does it divide by? Find out, and write the loss for DDP whose gradient is that of one device. Some
# labels are -100 and do not count.

# %%
def weighted_loss(logits, labels, class_weights):
    ### BEGIN SOLUTION
    total = class_weights[labels[labels != -100]].sum()
    dist.all_reduce(total)
    loss_sum = cross_entropy(logits, labels, weight=class_weights, reduction="sum")
    return loss_sum * world_size / total
    ### END SOLUTION

mgpu.check("08/weighted", weighted_loss, ranks=ranks)

# %% [markdown]
# ## Break it: averaging twice
#
# "There are two ranks, so I divide the loss by two." It looks careful. But DDP averages already. Train the
# digits network for two epochs, with the loss divided by `shrink`.

# %%
def losses_while_training(shrink, wrap=True, make=torch.optim.SGD, **options):
    from mgpu_utils.strategies import DistributedDataParallel, SingleDevice
    strategy = DistributedDataParallel(device) if wrap else SingleDevice(device)
    net = strategy.wrap(mgpu.digits_cnn(seed=0))
    optimizer = make(net.parameters(), **options)
    seen = []
    for batch, target in 2 * list(strategy.loader(mgpu.digits(train=True), 64, drop_last=True)):
        optimizer.zero_grad()
        loss = cross_entropy(net(batch.to(device)), target.to(device))
        (loss / shrink).backward()
        optimizer.step()
        seen.append(loss.detach())
    return (strategy.sum(torch.stack(seen)) / (world_size if wrap else 1)).tolist()

# %%
mgpu.predict("08/twice", ["an error", "nan", "it learns more slowly", "no difference"], answer=...,
             question="What happens to the run that averages twice?")

# %%
sgd = {"lr": 0.02}
curves = {
    "one device": ranks.run(losses_while_training, 1, wrap=False, **sgd)[0],
    "DDP, 2 ranks": ranks.run(losses_while_training, 1, **sgd)[0],
    "DDP, averaged twice": ranks.run(losses_while_training, 2, **sgd)[0],
    "the same on 8 ranks*": ranks.run(losses_while_training, 8, **sgd)[0],
}
mgpu.plots.loss_curves(curves, "Digits, SGD, the same rate in all runs");

# %%
mgpu.reveal("08/twice", "it learns more slowly")

# %% [markdown]
# DDP lies on the curve of one device. The run that averages twice has a gradient that is N times too small, for
# N ranks. (* The last curve divides by 8 on two ranks. That is what eight ranks would do.) There is no
# error. It looks like a bad learning rate, and gets worse with each rank you add.
#
# One comparison finds it: the gradient of one step, beside that of one device.

# %% tags=["nbval-check-output"]
# %%ranks
net = DDP(mgpu.digits_cnn(seed=0).to(device))
(cross_entropy(net(x), y) / world_size).backward()
print(ratio(gradient_of(net), on_one_device(64)), "x the gradient of one device")

# %% [markdown]
# Half of it on two ranks: averaged twice. `world_size` times it would be: not averaged at all. And why do
# some people never notice?

# %%
adam = {"make": torch.optim.Adam, "lr": 0.004}
for name, shrink in {"averaged once": 1, "averaged twice": 2}.items():
    print(f"Adam, {name}: last loss {ranks.run(losses_while_training, shrink, **adam)[0][-1]:.4f}")

# %% [markdown]
# Adam divides the gradient by its own size, so a constant factor nearly cancels. The mistake then waits
# until somebody clips gradients, or changes the optimizer.

# %%
ranks.shutdown()

# %% [markdown]
# ## On real GPUs
#
# - Python hands work to a GPU and runs ahead of it. `.item()` and `print(loss)` stop that: Python waits until
#   the GPU has computed the loss. With `.item()` at each step this is often the most expensive line of a loop.
# - `nccl` needs the tensor of `all_reduce` on the GPU. The count, too: hence `device=device` in the cells
#   above.

# %% [markdown]
# ## Recap
#
# 1. You combined the losses before `backward()`: the numbers became equal, and the gradients did not.
# 2. You counted: DDP sends nothing in forward and loss, and one number for each parameter in `backward()`.
# 3. You compared: for mean losses and equal shards DDP gives the gradient of one device, for sums
#    1 / world_size of it, and for uneven shards another one.
# 4. You made it right: sum over your own samples, times `world_size`, divided by the global count of what
#    counts.
# 5. You logged: sum of sums divided by sum of counts, and not at each step.
#
# **One step further.** You counted the bytes of each part of a step. [Break down a
# step](../benchmarks/03_break_down_a_step.ipynb) measures their seconds. Next: [09 Aggregate the
# gradients](09_aggregate_the_gradients.ipynb).
