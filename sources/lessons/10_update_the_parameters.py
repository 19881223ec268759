# %% [markdown]
# # Update the parameters, and prove that all is well
#
# In lesson 09 every rank got the same gradient. One line of the loop is left, and with it the question of the
# whole course: do many devices train the model that one device would have trained?
#
# **You'll do**
#
# 1. update one model for two ranks, then one model on each rank, and compare hashes after every step
# 2. clip gradients before and after they are averaged
# 3. train in bfloat16, and see what the [gradient scaler](../docs/glossary.md#gradient-scaler) does when one rank
#    overflows
# 4. save once, resume on every rank, and find what a resumed run forgets
# 5. prove that one device, DataParallel and DDP reach the same weights, and break the proof in three ways
# 6. train the digits network with all three, and compare accuracy and throughput
#
# **You'll learn** who updates what, what keeps replicas equal, and how to find out that they are not.
#
# **You need** about 80 minutes, two CPU cores, and lessons 00 to 09. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > `optimizer.step()` updates the model from the combined gradients.
#
# Do you believe it? Commit yourself before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("10/models", ["one, shared by all ranks", "one, held by rank 0", "one on each rank"],
             answer=...,
             question="How many models does a DDP job with two ranks update in one step?")

# %% [markdown]
# ## Two ranks, one batch

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
ranks.run(lambda: f"rank {rank} of world_size {world_size} is ready")

# %%
# %%ranks
from torch import nn
from torch.nn.functional import cross_entropy
from mgpu_utils.gradient_agreement import gradient_of
from mgpu_utils.step_hashes import model_hash
from mgpu_utils.traffic import Traffic

# %%
# %%ranks
torch.backends.cudnn.allow_tf32 = False  # full precision on GPUs, to compare results
torch.backends.cudnn.deterministic = True  # the same rounding each time

# %% [markdown]
# The running example: 64 digits, of which each rank takes its shard.

# %% tags=["nbval-check-output"]
# %%ranks
images, labels = (tensor.to(device) for tensor in mgpu.digits(train=True)[:64])
x, y = images.chunk(world_size)[rank], labels.chunk(world_size)[rank]
print(len(x), "samples")

# %% [markdown]
# ## By hand, as the claim says: one model
#
# "The model" sounds like one thing. So let rank 0 own it. The others send it their gradients, rank 0
# takes the step, and sends the new parameters to everybody.

# %%
# %%ranks
def step_of_the_owner(net, optimizer):
    for parameter in net.parameters():
        dist.reduce(parameter.grad, 0)
    if rank == 0:
        for parameter in net.parameters():
            parameter.grad /= world_size
        optimizer.step()
    for parameter in net.parameters():
        dist.broadcast(parameter.data, 0)

# %% [markdown]
# The other way: all ranks average the gradients, as in lesson 09. Then **each** rank takes the step, with
# an optimizer of its own.

# %%
# %%ranks
def average_gradients(net):
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size

def step_of_everybody(net, optimizer):
    average_gradients(net)
    optimizer.step()

# %% [markdown]
# Lesson 04 made a hash of each tensor. `model_hash` makes one of the whole model. Six steps each way, with a hash
# after every step.

# %%
def six_steps(step):
    net = mgpu.digits_cnn(seed=0).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    hashes = []
    for _ in range(6):
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        step(net, optimizer)
        hashes.append(model_hash(net))
    return hashes

# %%
from mgpu_utils.step_hashes import StepHashes

owner = ranks.run(lambda: six_steps(step_of_the_owner))
everybody = ranks.run(lambda: six_steps(step_of_everybody))

# %%
rows = {f"owner, rank {number}": hashes for number, hashes in enumerate(owner)}
rows |= {f"everybody, rank {number}": hashes for number, hashes in enumerate(everybody)}
StepHashes(rows)

# %% [markdown]
# Read a row from left to right: every step changed the parameters. Read a column from top to bottom: after
# each step both ranks hold the same bits, whichever way. So both ways work. What do they cost?

# %%
def bytes_of(step):
    net = mgpu.digits_cnn(seed=0).to(device)
    cross_entropy(net(x), y).backward()
    with Traffic() as traffic:
        step(net, torch.optim.SGD(net.parameters(), lr=0.05))
    return str(traffic)

# %% tags=["nbval-check-output"]
print("owner:    ", ranks.run(lambda: bytes_of(step_of_the_owner))[0])
print("everybody:", ranks.run(lambda: bytes_of(step_of_everybody))[0])

# %% [markdown]
# With an owner, as many bytes as the model has come back to every rank, one more time, and all of it
# passes through rank 0. If every rank updates for itself, nothing has to come back: the new parameters
# follow from what each rank already has.

# %% [markdown]
# ## What DDP does
#
# DDP takes the second way. `backward()` averages, and `optimizer.step()` is an ordinary step of an
# ordinary optimizer, on each rank (lesson 07 counted its collectives: none).

# %%
def six_steps_with_ddp(lower_the_rate_on=()):
    strategy = mgpu.DistributedDataParallel()
    net = strategy.wrap(mgpu.digits_cnn(seed=0))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    hashes = []
    for step in range(6):
        if step == 3 and rank in lower_the_rate_on:
            optimizer.param_groups[0]["lr"] = 0.045
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        optimizer.step()
        hashes.append(model_hash(net))
    return hashes

# %%
with_ddp = StepHashes(ranks.run(six_steps_with_ddp))
with_ddp

# %% tags=["nbval-check-output"]
print("equal after every step:", with_ddp.agree)

# %%
mgpu.reveal("10/models", "one on each rank", "They are equal, but nobody compares them.")

# %% [markdown]
# The three things of lesson 07 make the copies equal: the same start, the same gradients, the same
# optimizer state, and with it its settings. DDP looks after the first once, and after the second at each
# step. The third is yours.
#
# A mistake that is easy to make: after three steps, the learning rate is lowered under `if rank == 0:`.

# %%
StepHashes(ranks.run(six_steps_with_ddp, [0]))

# %% [markdown]
# From step 4 on each rank trains a model of its own, with gradients averaged over two *different* models.
# There is no error and no warning. The hash tells. In a real job, compare it every few hundred steps:
# eight characters a rank.

# %% [markdown]
# ## Clip after the gradients are averaged
#
# Clipping makes the gradient shorter when its norm is above a limit. The norm of what? On one device, of
# the gradient of the whole batch. Both orders by hand:

# %%
def clipped(order, limit=0.5):
    net = mgpu.digits_cnn(seed=0).to(device)
    cross_entropy(net(x), y).backward()
    if order == "average, then clip":
        average_gradients(net)
    own = nn.utils.clip_grad_norm_(net.parameters(), limit).item()
    if order == "clip, then average":
        average_gradients(net)
    return own, gradient_of(net)

# %% [markdown]
# And one device with the whole batch, to compare with:

# %%
import torch

images, labels = mgpu.digits(train=True)[:64]
alone = mgpu.digits_cnn(seed=0)
torch.nn.functional.cross_entropy(alone(images), labels).backward()

# %%
norm_alone = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
wanted = torch.cat([parameter.grad.flatten() for parameter in alone.parameters()])

# %%
print(f"one device:         norm {norm_alone:.4f}, clipped to {wanted.norm():.4f}")
for order in ("clip, then average", "average, then clip"):
    (norm, found), (norm_1, _) = ranks.run(clipped, order)
    print(f"{order}: norms {norm:.4f} and {norm_1:.4f}, result {found.norm():.4f}, "
          f"off by {(found - wanted).norm() / wanted.norm():.2%}")

# %% tags=["nbval-check-output"]
def is_right(order):
    return torch.allclose(ranks.run(clipped, order)[0][1], wanted, atol=1e-5)

{order: is_right(order) for order in ("clip, then average", "average, then clip")}

# %% [markdown]
# Clipped first, each rank shortens its own gradient by its own factor. The mean of the two is shorter
# than the limit, and points in another direction. Averaged first, both ranks see one and the same norm.
#
# Under DDP the right order comes by itself: after `backward()` the gradients *are* averaged. Call
# `clip_grad_norm_` between `backward()` and `step()`. It needs no collective:

# %%
def clip_under_ddp():
    net = mgpu.DistributedDataParallel().wrap(mgpu.digits_cnn(seed=0))
    cross_entropy(net(x), y).backward()
    with Traffic() as traffic:
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    return torch.allclose(gradient_of(net).cpu(), wanted, atol=1e-5), str(traffic)

# %% tags=["nbval-check-output"]
ranks.run(clip_under_ddp)

# %% [markdown]
# ## Mixed precision
#
# Training in [mixed precision](../docs/glossary.md#mixed-precision) means: under `torch.autocast` the expensive
# operations (convolutions, matrix products) compute with 16 bits. What about the rest?

# %%
# %%rank 0
net = mgpu.digits_cnn(seed=0).to(device)
with torch.autocast(device.type, dtype=torch.bfloat16):
    logits = net(x)
loss = cross_entropy(logits.float(), y)
loss.backward()

# %% tags=["nbval-check-output"]
# %%rank 0
print("logits   ", logits.dtype)
print("loss     ", loss.dtype)
print("weight   ", net[0].weight.dtype)
print("gradient ", net[0].weight.grad.dtype)

# %% [markdown]
# The parameters and their gradients are still float32. So an update is as exact as before. And what is
# sent? Predict before you count: how many bytes does a rank hand to `all_reduce` in one step,
# compared with full precision?

# %%
mgpu.predict("10/bytes", ["half as many", "the same", "twice as many"], answer=...,
             question="Under autocast to bfloat16, DDP sends ...")

# %%
def bytes_in_backward(mixed):
    net = mgpu.DistributedDataParallel().wrap(mgpu.digits_cnn(seed=0))
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
        logits = net(x)
    with Traffic() as traffic:
        cross_entropy(logits.float(), y).backward()
    return f"{traffic.nbytes:,} bytes"

# %% tags=["nbval-check-output"]
print("float32: ", ranks.run(bytes_in_backward, False)[0])
print("bfloat16:", ranks.run(bytes_in_backward, True)[0])

# %%
mgpu.reveal("10/bytes", "the same", "For fewer bytes: a communication hook, as in lesson 09.")

# %% [markdown]
# ### The scaler, for float16
#
# bfloat16 has the range of float32 and fewer digits. float16 has more digits and a small range: what is
# below about 0.00000003 becomes 0. Gradients are often that small.

# %% tags=["nbval-check-output"]
small = torch.tensor(1e-8)
print("float16: ", small.half().item())
print("bfloat16:", round(small.bfloat16().item(), 10))
print("float16, multiplied by 65536 first:", round((small * 65536).half().item() / 65536, 10))

# %% [markdown]
# That is what `torch.amp.GradScaler` is for: it multiplies the loss, so that all gradients are larger,
# and divides the gradients again before the step. If the factor was too large, some gradient is infinite.
# Then it skips the step and halves the factor.
#
# On several ranks a question comes up. What if only rank 1 overflows, and rank 0 does not skip? Make it
# happen: rank 1 multiplies its loss by a huge number.

# %%
def scaled_step(factor_on_rank_1):
    net = mgpu.DistributedDataParallel().wrap(mgpu.digits_cnn(seed=0))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(device.type)
    before = model_hash(net)
    with torch.autocast(device.type, dtype=torch.float16):
        logits = net(x)
    loss = cross_entropy(logits.float(), y) * (factor_on_rank_1 if rank == 1 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return f"updated: {model_hash(net) != before}, scale is now {scaler.get_scale():.0f}"

# %% tags=["nbval-check-output"]
print("no overflow:       ", ranks.run(scaled_step, 1.0))
print("overflow on rank 1:", ranks.run(scaled_step, 1e36))

# %% [markdown]
# Both ranks skipped, and both halved. The scalers never talked to each other. They did not need to: an
# infinite gradient stays infinite when it is averaged, so after `backward()` every rank finds it. Again
# the ranks decide alike because they see the same gradients.

# %% [markdown]
# ## Save once, resume everywhere
#
# All copies are equal, so one of them is enough: rank 0 saves. Then everybody waits until the file is
# there.

# %%
def save(path, model, optimizer, epoch, batch):
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                    "epoch": epoch, "batch": batch}, path)
    dist.barrier()

# %% [markdown]
# `model.module` is the plain model, so the file fits any strategy. `epoch` and `batch` say how far the
# data has been used.
#
# Now a run that is never interrupted: 50 steps of 22 an epoch. It leaves a checkpoint after step 30,
# which is in the middle of the second epoch. All weights are noted after each step.

# %%
def new_run():
    strategy = mgpu.DistributedDataParallel()
    model = strategy.wrap(mgpu.digits_cnn(seed=0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = strategy.loader(mgpu.digits(train=True), 64, shuffle=True, drop_last=True)
    return model, optimizer, loader

# %%
def update(model, optimizer, images, labels):
    optimizer.zero_grad()
    cross_entropy(model(images.to(device)), labels.to(device)).backward()
    optimizer.step()

# %%
def flat(parameters):
    return torch.cat([parameter.detach().flatten().cpu() for parameter in parameters])

# %%
def train_until(last, save_after, path):
    model, optimizer, loader = new_run()
    trail = []
    for step in range(last):
        epoch, batch = divmod(step, len(loader))
        if batch == 0:
            loader.batch_sampler.set_epoch(epoch)
            batches = iter(loader)
        update(model, optimizer, *next(batches))
        trail.append(flat(model.parameters()))
        if step + 1 == save_after:
            save(path, model, optimizer, epoch, batch + 1)
    return torch.stack(trail)

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
path = folder / "checkpoint.pt"

# %% tags=["nbval-check-output"]
uninterrupted = ranks.run(train_until, 50, 30, path)
saved = torch.load(path, weights_only=True)
print({name: saved[name] for name in ("epoch", "batch")}, uninterrupted[0].shape)

# %% [markdown]
# Is the run itself repeatable? If not, there is nothing to compare with. The same 50 steps again:

# %% tags=["nbval-check-output"]
again = ranks.run(train_until, 50, 30, path)
print("two uninterrupted runs, bit by bit:", torch.equal(uninterrupted[0], again[0]))

# %% [markdown]
# Now resume, 20 steps, and leave something out. The first run loads the weights only. The second loads
# the optimizer as well, and both let the loader begin where a new loader begins.

# %%
from itertools import islice

def resumed(path, with_optimizer):
    model, optimizer, loader = new_run()
    saved = torch.load(path, map_location=device, weights_only=True)
    model.module.load_state_dict(saved["model"])
    if with_optimizer:
        optimizer.load_state_dict(saved["optimizer"])
    trail = []
    for images, labels in islice(loader, 20):
        update(model, optimizer, images, labels)
        trail.append(flat(model.parameters()))
    return torch.stack(trail)

# %%
def distance(one, other):
    return (one - other).abs().amax(dim=1).tolist()

# %%
rest = uninterrupted[0][30:]
curves = {"weights only": distance(ranks.run(resumed, path, False)[0], rest),
          "weights and optimizer": distance(ranks.run(resumed, path, True)[0], rest)}
title = "Resumed after step 30: distance from the uninterrupted run"
mgpu.plots.weight_difference(curves, title, first=31);

# %% [markdown]
# Neither is the uninterrupted run, from the first step on. Without the optimizer the momentum starts at
# zero. With it, the samples still come in the order of epoch 0, from its beginning: some are used twice,
# and others wait. In exercise 2 you close the gap.
#
# And *everywhere*? DDP sends rank 0's weights to the others when it wraps the model (lesson 04). It does not send
# the optimizer's state, and lesson 07 showed what comes of it when one rank starts with a fresh one: two models,
# after one step. So **one rank saves, and every rank loads**.
#
# Three more things belong into a file: the scaler's factor, the state of the learning rate schedule, and
# the random state of *each* rank, if the model draws numbers. `mgpu_utils.checkpoints` keeps the first
# and the last for you, and takes others by name.

# %% [markdown]
# ## The proof
#
# One device, DataParallel and DDP; the same start, the same global batches in the same order; 50 steps. A
# hook of the optimizer notes all weights after each step, the *trail* of the run. So `mgpu.train` from lesson 06
# can stay as it is.

# %%
def trail_of(strategy, model, **options):
    trail = []
    def watched_sgd(parameters):
        parameters = list(parameters)
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        optimizer.register_step_post_hook(lambda *_: trail.append(flat(parameters)))
        return optimizer
    mgpu.train(model, mgpu.digits(train=True), strategy=strategy, epochs=3, max_steps=50,
               optimizer=watched_sgd, **options)
    return torch.stack(trail)

# %%
torch.backends.cudnn.allow_tf32 = False
torch.set_num_threads(1)  # on a CPU, as many as each rank and each replica has
one_device = mgpu.SingleDevice(ranks.plan.rank_devices[0])
two_replicas = mgpu.DataParallel(2)

# %%
single = trail_of(one_device, mgpu.digits_cnn(seed=0))
replicated = trail_of(two_replicas, mgpu.digits_cnn(seed=0))
distributed = ranks.run(lambda: trail_of(mgpu.DistributedDataParallel(),
                                           mgpu.digits_cnn(seed=0)))

# %%
curves = {f"DataParallel ({two_replicas.implementation})": distance(replicated, single),
          "DDP, rank 0": distance(distributed[0], single),
          "DDP, rank 1": distance(distributed[1], single),
          "rank 1 from rank 0": distance(distributed[1], distributed[0])}
mgpu.plots.weight_difference(curves, "Distance from the weights of one device", tolerance=1e-5);

# %% tags=["nbval-check-output"]
print("DataParallel within 1e-5 of one device:", max(distance(replicated, single)) < 1e-5)
print("DDP within 1e-5 of one device:         ", max(distance(distributed[0], single)) < 1e-5)
print("the two ranks of DDP, bit by bit:      ", torch.equal(*distributed))

# %% [markdown]
# The ranks are equal bit by bit: they do the same arithmetic. From one device they differ by rounding: 64
# numbers added in one go, or 32 and 32 and then both, end in another last digit. That is as close as it
# can be.
#
# The network is built for this. Here are three things that break the proof, and cures.

# %% [markdown]
# ### BatchNorm: statistics of a shard
#
# BatchNorm normalises with the mean and the variance of the batch, and a rank sees its own shard only.
# The cure: compute them over all ranks. The sums travel forward, and so do gradients backward.

# %%
# %%ranks
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    backward = forward

# %%
# %%ranks
class GlobalBatchNorm(nn.BatchNorm2d):
    def forward(self, x):
        total = SumOverRanks.apply
        count = total(x.new_tensor(x.numel() / x.shape[1]))
        centred = x - (total(x.sum((0, 2, 3))) / count)[:, None, None]
        variance = total((centred ** 2).sum((0, 2, 3))) / count
        scale = self.weight / torch.sqrt(variance + self.eps)
        return centred * scale[:, None, None] + self.bias[:, None, None]

# %% [markdown]
# `nn.SyncBatchNorm` of lesson 04 is this, for GPUs only. With plain BatchNorm the ranks still agree with
# each other: gradients are averaged, and DDP gives everybody rank 0's running statistics. They just train another
# model than one device would. The digits network with BatchNorm in place of GroupNorm:

# %%
def with_batch_norm(kind):
    net = mgpu.digits_cnn(seed=0)
    net[1], net[4] = kind(16), kind(32)
    return net

# %%
def batch_norm_on_ranks(cured):
    kind = GlobalBatchNorm if cured else torch.nn.BatchNorm2d
    return trail_of(mgpu.DistributedDataParallel(), with_batch_norm(kind))

# %%
reference = trail_of(one_device, with_batch_norm(torch.nn.BatchNorm2d))
batch_norm = [distance(ranks.run(batch_norm_on_ranks, cured)[0], reference)
              for cured in (False, True)]

# %% [markdown]
# ### Uneven shards: a mean of means
#
# 1437 samples make 22 batches of 64, and one of 29: 15 for rank 0, 14 for rank 1. If each rank takes the
# mean over its own samples, those of rank 1 count for more (lesson 08). The cure is what `mgpu.train`
# does: divide by the global count. So here it has to be broken first.

# %%
def uneven_on_ranks(cured):
    class MeanOfMeans(mgpu.DistributedDataParallel):
        def scale_loss(self, loss_sum, global_count):
            return loss_sum / mgpu.split_sizes(global_count, self.world_size)[self.rank]
    kind = mgpu.DistributedDataParallel if cured else MeanOfMeans
    return trail_of(kind(), mgpu.digits_cnn(seed=0))

# %%
uneven = [distance(ranks.run(uneven_on_ranks, cured)[0], single) for cured in (False, True)]

# %% [markdown]
# ### Dropout: seeds
#
# Dropout draws a mask for each batch. Seed all ranks alike, and both draw the *same* mask: samples 0 and
# 32 always lose the same features.

# %%
def drawn(seed_of):
    torch.manual_seed(seed_of(rank))
    return (torch.nn.functional.dropout(torch.ones(8)) > 0).int().tolist()

# %% tags=["nbval-check-output"]
same = ranks.run(drawn, lambda rank: 0)
different = ranks.run(drawn, lambda rank: rank)
print("seed 0 everywhere: the same mask on both ranks:", same[0] == same[1])
print("seed 0 + rank:     the same mask on both ranks:", different[0] == different[1])

# %% [markdown]
# So seed each rank differently. For training that is enough. For equality with one device it is not: the
# masks have to be those that one device draws. The cure: every rank draws the mask of the whole batch,
# from one seed, and takes its piece.

# %%
class DropoutOfTheBatch(torch.nn.Module):
    def __init__(self, rank=0, world_size=1):
        super().__init__()
        self.rank, self.world_size = rank, world_size
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x):
        shape = (len(x) * self.world_size, *x.shape[1:])
        drawn = torch.rand(shape, generator=self.generator)
        kept = drawn.chunk(self.world_size)[self.rank] > 0.2
        return x * kept.to(x.device) / 0.8

# %%
def with_dropout(layer):
    return torch.nn.Sequential(*mgpu.digits_cnn(seed=0)[:7], layer, mgpu.digits_cnn(seed=0)[7])

# %%
def dropout_on_ranks(cured):
    torch.manual_seed(rank)
    layer = DropoutOfTheBatch(rank, world_size) if cured else torch.nn.Dropout(0.2)
    return trail_of(mgpu.DistributedDataParallel(), with_dropout(layer), drop_last=True)

# %%
reference = trail_of(one_device, with_dropout(DropoutOfTheBatch()), drop_last=True)
dropout = [distance(ranks.run(dropout_on_ranks, cured)[0], reference)
           for cured in (False, True)]

# %% [markdown]
# All three, broken and cured:

# %%
cases = {"BatchNorm": batch_norm, "Uneven shards": uneven, "Dropout": dropout}
mgpu.plots.broken_and_cured(cases, tolerance=1e-5);

# %% tags=["nbval-check-output"]
for name, (broken, cured) in cases.items():
    print(f"{name:14} within 1e-5: broken {max(broken) < 1e-5}, cured {max(cured) < 1e-5}")

# %% [markdown]
# Look at *uneven shards*: nothing happens until the last batch of the first epoch. A test that runs ten
# steps does not see it.
#
# And mixed precision? It has no such cure, because it rounds to fewer digits:

# %%
class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mgpu.digits_cnn(seed=0)

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return self.net(x).float()

# %%
rounded = ranks.run(lambda: trail_of(mgpu.DistributedDataParallel(), Mixed()))
off = max(distance(rounded[0], trail_of(one_device, Mixed())))
print(f"bfloat16: ranks equal bit by bit: {torch.equal(*rounded)}, one device off by {off:.1g}")

# %% [markdown]
# The replicas still agree, which is what training needs. So check your parallel code in float32, then
# switch mixed precision on.

# %% [markdown]
# ## The whole of it: three strategies, one network
#
# Ten epochs with each strategy, from the same start. Then the test set: 360 digits that none of them has
# seen.

# %%
def trained(strategy):
    model, epochs = mgpu.digits_cnn(seed=0), 10
    history = mgpu.train(model, mgpu.digits(train=True), strategy=strategy, epochs=epochs)
    result = mgpu.evaluate(history.model, mgpu.digits(train=False), strategy=strategy)
    ends = history.epoch_frame["seconds"]
    return {"weights": flat(history.model.parameters()), "accuracy": result["accuracy"],
            "seconds": ends.diff().tolist()[1:]}  # the first epoch is warm-up

# %%
runs = {"single": [trained(one_device)], "data_parallel": [trained(two_replicas)],
        "ddp": ranks.run(lambda: trained(mgpu.DistributedDataParallel()))}

# %% [markdown]
# First the weights, then the answers:

# %%
start = runs["single"][0]["weights"]
for name, results in runs.items():
    off = max((result["weights"] - start).abs().max().item() for result in results)
    print(f"{name:14} test accuracy {results[0]['accuracy']:.2%}, weights off by {off:.1g}")

# %% tags=["nbval-check-output"]
for name, results in runs.items():
    close = all(torch.allclose(result["weights"], start, atol=1e-3) for result in results)
    print(f"{name:14} at least 97 %: {results[0]['accuracy'] >= 0.97}, same weights: {close}")

# %% [markdown]
# [Throughput](../docs/glossary.md#throughput) counts the samples of all devices, and the slowest rank sets
# the time of an epoch. On a CPU a device is one thread here: one for the single device, one for each
# replica and for each rank.

# %%
from mgpu_utils.timing import median_interval

throughput = {}
for name, results in runs.items():
    slowest = [max(seconds) for seconds in zip(*(result["seconds"] for result in results))]
    throughput[name] = median_interval([1437 / seconds for seconds in slowest])
accuracy = {name: results[0]["accuracy"] for name, results in runs.items()}

# %%
names = {}
if two_replicas.implementation != "torch":
    names["data_parallel"] = f"DataParallel\n({two_replicas.implementation})"
title = f"Digits, global batch 64, measured on this machine ({one_device.device.type})"
mgpu.plots.accuracy_and_throughput(accuracy, throughput, names, title);

# %% [markdown]
# The left bars are equal because the weights are. The right bars belong to *this* machine at this moment:
# the three ran one after the other, each epoch once, and with a network this small what is measured is
# mostly overhead. Where there are not two GPUs, the bar of DataParallel is that of the stand-in. To
# compare strategies in earnest, with larger networks and in turns, use the benchmark at the end of this
# page.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
far = max(distance(distributed[0], single))
apart = max(distance(*distributed))
print(f"after 50 steps {len(distributed)} ranks hold {len(distributed)} models; largest difference "
      f"between them {apart:g}, from the model of one device {far:.1g}")

# %% [markdown]
# **Half true.** With DDP there is no "the model": `optimizer.step()` runs on every rank, on that rank's
# own copy, and the copies stay equal only because start, gradients and optimizer are equal.
#
# With DataParallel the sentence holds, for there is one master copy. With DDP nothing in `step()` sees
# another rank, and nothing checks. What you change by hand after `backward()` (a gradient, a rate, a
# state) has to be changed alike everywhere.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: one step with everything (10 minutes, difficulty 2 of 3)
#
# A step with scaler and clipping has one right order. Write it. `model` is wrapped in DDP, `loss` is this
# rank's loss. Afterwards the weights must be those of one device that clips the gradient of the whole
# batch to `max_norm`, within 0.00001. When a gradient is infinite, no weight may change, and the scale
# must become smaller.

# %%
def update_with_everything(model, optimizer, scaler, loss, max_norm):
    optimizer.zero_grad()
    ### BEGIN SOLUTION
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    ### END SOLUTION

mgpu.check("10/update", update_with_everything, ranks=ranks)

# %% [markdown]
# ### Exercise 2: resume as if nothing had happened (15 minutes, difficulty 3 of 3)
#
# Each rank gets the path of a checkpoint, and `model`, `optimizer` and `loader` of a new run, as
# `new_run()` makes them. Load, and train on until `last` steps are done, counted from the very beginning.
# Do each step with `update(images, labels)`. Afterwards every weight must equal that of the uninterrupted
# run, **bit by bit**. The file holds `model`, `optimizer`, `epoch`, and `batch`: how many batches of this
# epoch are done.

# %%
def resume(path, model, optimizer, loader, update, last):
    saved = torch.load(path, map_location=device, weights_only=True)
    ### BEGIN SOLUTION
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["epoch"] * len(loader) + saved["batch"]
    for epoch in range(saved["epoch"], last // len(loader) + 1):
        loader.batch_sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader, start=epoch * len(loader)):
            if done <= step < last:
                update(images, labels)
    ### END SOLUTION

mgpu.check("10/resume", resume, ranks=ranks)

# %% [markdown]
# ### Exercise 3: who left, and when? (8 minutes, difficulty 2 of 3)
#
# Four ranks noted a hash after every step: `hashes[rank][step]`, both counted from 0. Return `(rank,
# step)` of the first rank that differs from the others, and the first step at which it does; `None` if
# none ever does. Any rank can be the one, also rank 0.

# %%
def first_to_leave(hashes):
    ### BEGIN SOLUTION
    for step, column in enumerate(zip(*hashes)):
        usual = max(column, key=column.count)
        for rank, value in enumerate(column):
            if value != usual:
                return rank, step
    return None
    ### END SOLUTION

mgpu.check("10/leaver", first_to_leave)

# %% [markdown]
# ## Break it: every rank writes the same file
#
# Without `if rank == 0:` each rank saves, all into one file. Below they do so again and again, and read
# back what they saved. This cell ends in an error. That is its purpose.

# %% tags=["raises-exception"]
def everybody_saves(path):
    state = mgpu.digits_cnn(seed=0).state_dict()
    for _ in range(500):
        torch.save(state, path)
        torch.load(path, weights_only=True)

ranks.run(everybody_saves, folder / "shared.pt")

# %% [markdown]
# One rank opened the file for writing, which empties it. Another one was reading, and found a piece. The
# message differs from time to time, and so does the step. It can go well a thousand times, and then a job
# that cannot be resumed is found the day it has to be.
#
# The ranks are still there, and `save_checkpoint` cures it: one rank writes, into a file beside the old
# one, which it then replaces in one move. So a job that dies while it saves leaves the *old* checkpoint.
# Fifty times, and everybody reads:

# %%
from mgpu_utils.checkpoints import load_checkpoint, save_checkpoint

def one_saves(path):
    model, optimizer, _ = new_run()
    for batch in range(50):
        save_checkpoint(path, model=model, optimizer=optimizer, epoch=0, batch=batch)
        found = load_checkpoint(path, model=model, optimizer=optimizer)
    return f"rank {rank} of {world_size}: {batch + 1} times, last read {found}"

# %% tags=["nbval-check-output"]
ranks.run(one_saves, folder / "safe.pt")

# %%
import shutil

shutil.rmtree(folder)
ranks.shutdown()

# %% [markdown]
# ## On real GPUs
#
# - Each rank's copy lives on its own card. A checkpoint remembers the card it came from: without
#   `map_location` all ranks load onto GPU 0, and its memory fills.
# - Some operations add up in another order each time. For *bit by bit* this page sets
#   `torch.backends.cudnn.deterministic`; other networks need `torch.use_deterministic_algorithms(True)`.
# - float16 with the scaler is faster than float32 there, and bfloat16 is too, without a scaler. On
#   several machines the checkpoint's folder must be one that all of them see.

# %% [markdown]
# ## Recap
#
# 1. You updated one model for both ranks, and one on each: the same bits, but the first way sends all
#    parameters again. A hash after every step shows when replicas part.
# 2. You clipped before and after averaging: only the second is what one device does.
# 3. You trained in 16 bits: as many bytes are sent, and an overflow on one rank makes all skip.
# 4. You saved once and resumed: weights, optimizer on *every* rank, epoch and batch of the sampler.
# 5. You proved that three strategies reach the same weights, broke it with BatchNorm, uneven shards and
#    dropout, and cured each.
# 6. You trained the digits with all three, and saw equal accuracy at different speed.
#
# **One step further.** That was the last step. Which strategy is faster on this machine, and how far is
# it from what the machine can do? [Compare strategies](../benchmarks/01_compare_strategies.ipynb)
# measures it. And what would 8 or 64 devices do? [Predict](../benchmarks/06_predict.ipynb) says it, with the
# error of its own predictions. To look at the whole way once more: [00 Start here](00_start_here.ipynb).
