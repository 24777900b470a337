"""The graphs that run_gpu_tests.py runs, as text."""

# A loss of classes: rows that are left out, longer than a block; its gradient goes through log-softmax.
CLASS_GRADIENT = '''sg 1.0
graph rank *
  input %x : TYPE[9, 700] "x"
  input %t : i64[9] "t"
  input %w : TYPE[700] "w"
  input %g : TYPE[GRAD] "g"
  %y = aten._log_softmax(%x, 1, false)
  %l, %n = aten.nll_loss_forward(%y, %t, WEIGHT, REDUCTION, 3)
  %dl = aten.nll_loss_backward(%g, %y, %t, WEIGHT, REDUCTION, 3, %n)
  %dx = aten._log_softmax_backward_data(%dl, %y, -1, TO)
  output %l
  output %dx
'''

# Casts around softmax, of which sg-clean --fold-casts makes those before part of it: rows and columns, longer than a block.
HALVES = '''sg 1.0
graph rank *
  input %x : TYPE[3, 7, 300] "x"
  input %g : f32[21, 300] "g"
  %wide = aten._to_copy(%x, dtype=f32)
  %rows = aten.view(%wide, [21, 300])
  %y = aten._log_softmax(%rows, 1, false)
  %dx = aten._log_softmax_backward_data(%g, %y, 1, f32)
  %narrow = aten._to_copy(%dx, dtype=TYPE)
  %again = aten._to_copy(%x, dtype=f32)
  %s = aten._softmax(%again, 1, false)
  %t = aten.mul.Tensor(%s, %s)
  %ds = aten._softmax_backward_data(%t, %s, 1, f32)
  %dn = aten._to_copy(%ds, dtype=TYPE)
  output %y
  output %narrow
  output %s
  output %dn
'''

# Every kind of collective, sums whose bits depend on their order, and one of a strided tensor.
COLLECTIVES = '''sg 1.0 world 4
group @all [0 1 2 3]
group @pair [0 2] [1 3]
graph rank *
  input %x : f32[8, 3] "x"
  input %h : bf16[8, 3] "h"
  input %n : i64[4] "n"
  %gathered = _c10d_functional.all_gather_into_tensor(%x, 2, @pair)             : f32[16, 3]
  %reduced  = _c10d_functional.all_reduce(%x, "avg", @all)                      : f32[8, 3]
  %halves   = _c10d_functional.all_reduce(%h, "sum", @all)                      : bf16[8, 3]
    at "step.py":7 exchange
  %most     = _c10d_functional.all_reduce(%n, "max", @all)                      : i64[4]
  %shard    = _c10d_functional.reduce_scatter_tensor(%x, "sum", 4, @all)        : f32[2, 3]
  %routed   = _c10d_functional.all_to_all_single(%n, [1, 1, 1, 1], [1, 1, 1, 1], @all) : i64[4]
  %first    = _c10d_functional.broadcast(%x, 1, @pair)                          : f32[8, 3]
  %turned   = aten.t(%x)                                                        : f32[3, 8] stride [1, 3]
  %strided  = _c10d_functional.all_reduce(%turned, "sum", @pair)                : f32[3, 8] stride [1, 3]
  %w4 = _c10d_functional.wait_tensor(%first)    : f32[8, 3]
  %w0 = _c10d_functional.wait_tensor(%gathered) : f32[16, 3]
  %w3 = _c10d_functional.wait_tensor(%routed)   : i64[4]
  %w1 = _c10d_functional.wait_tensor(%reduced)  : f32[8, 3]
  %w5 = _c10d_functional.wait_tensor(%halves)   : bf16[8, 3]
  %w6 = _c10d_functional.wait_tensor(%most)     : i64[4]
  %w2 = _c10d_functional.wait_tensor(%shard)    : f32[2, 3]
  %w7 = _c10d_functional.wait_tensor(%strided)  : f32[3, 8] stride [1, 3]
  output %w0
  output %w1
  output %w2
  output %w3
  output %w4
  output %w5
  output %w6
  output %w7
'''

# A number for the host that hangs on a collective.
AWAITED = '''sg 1.0 world 4
group @all [0 1 2 3]
graph rank *
  input %x : f32[8, 3] "x"
  %r = _c10d_functional.all_reduce(%x, "sum", @all) : f32[8, 3]
  %w = _c10d_functional.wait_tensor(%r)             : f32[8, 3]
  %s = aten.sum(%w)                                 : f32[]
  %n = aten._local_scalar_dense(%s)                 : float
  %y = aten.mul.Tensor(%x, %n)                      : f32[8, 3]
  output %y
'''

# Ops whose bits are those of the processor: pointwise chains over all kinds of elements, moves, whole sums, products of integers.
SAME_BITS = '''sg 1.0
graph rank *
  input %a : f32[6, 5] "a"
  input %b : bf16[6, 5] "b"
  input %i : i64[6, 5] "i"
  %wide  = aten._to_copy(%b, dtype=f32)      : f32[6, 5]
  %s     = aten.silu(%a)                     : f32[6, 5]
  %m     = aten.mul.Tensor(%s, %wide)        : f32[6, 5]
  %g     = aten.gelu(%m)                     : f32[6, 5]
  %t     = aten.tanh(%g)                     : f32[6, 5]
  %e     = aten.exp(%t)                      : f32[6, 5]
  %h     = aten.add.Tensor(%b, %b)           : bf16[6, 5]
  %hs    = aten.sigmoid(%h)                  : bf16[6, 5]
  %f8    = aten._to_copy(%g, dtype=f8e4m3fn) : f8e4m3fn[6, 5]
  %back  = aten._to_copy(%f8, dtype=bf16)    : bf16[6, 5]
  %turn  = aten.t(%e)                        : f32[5, 6] stride [1, 5]
  %solid = aten.clone(%turn, memory_format=contiguous_format) : f32[5, 6]
  %both  = aten.cat([%e, %a], 1)             : f32[6, 10]
  %rest  = aten.remainder.Scalar(%i, 7)      : i64[6, 5]
  %sum   = aten.sum.dim_IntList(%rest, [1])  : i64[6]
  %ti    = aten.t(%rest)                     : i64[5, 6] stride [1, 5]
  %prod  = aten.mm(%rest, %ti)               : i64[6, 6]
  %low   = aten.tril(%prod, -1)              : i64[6, 6]
  %order, %place = aten.sort(%a, 1, true)    : f32[6, 5], i64[6, 5]
  %rows  = aten.embedding(%a, %place)        : f32[6, 5, 5]
  output %e
  output %hs
  output %f8
  output %back
  output %solid
  output %both
  output %sum
  output %low
  output %order
  output %place
  output %rows
'''

# Products of one matrix by itself, added to one, and of a batch; and with a bias for all rows: seven calls of cuBLASLt.
PRODUCTS = '''sg 1.0
graph rank *
  input %a : f32[6, 5] "a"
  input %b : bf16[6, 5] "b"
  input %c : bf16[7] "c"
  input %d : f32[6] "d"
  %t      = aten.t(%a)                                   : f32[5, 6] stride [1, 5]
  %rows   = aten.mm(%a, %t)                              : f32[6, 6]
  %cols   = aten.addmm(%rows, %rows, %rows, beta=0.5)    : f32[6, 6]
  %b3     = aten.view(%b, [2, 3, 5])                     : bf16[2, 3, 5]
  %turned = aten.transpose.int(%b3, 1, 2)                : bf16[2, 5, 3] stride [15, 1, 5]
  %batch  = aten.bmm(%b3, %turned)                       : bf16[2, 3, 3]
  %again  = aten.mm(%rows, %cols)                        : f32[6, 6]
  %bt     = aten.t(%b)                                   : bf16[5, 6] stride [1, 5]
  %part   = aten.slice.Tensor(%c, 0, 1, 7)               : bf16[6] +1
  %odd    = aten.addmm(%part, %b, %bt)                   : bf16[6, 6]
  %least  = aten.addmm(%d, %a, %t, alpha=0.5)            : f32[6, 6]
  %column = aten.view(%d, [6, 1])                        : f32[6, 1]
  %other  = aten.addmm(%column, %a, %t)                  : f32[6, 6]
  output %batch
  output %again
  output %odd
  output %least
  output %other
'''

# Work by element that processor and device share: the same bits, and nothing for the host.
SHARED_WORK = '''sg 1.0
graph rank *
  input %a : f32[6, 5] "a"
  input %b : bf16[6, 5] "b"
  input %i : i64[6, 5] "i"
  %plane = aten.view(%a, [1, 1, 6, 5])
  %cols  = aten.im2col(%plane, [2, 3], [1, 1], [1, 0], [2, 1])
  %back  = aten.col2im(%cols, [6, 5], [2, 3], [1, 1], [1, 0], [2, 1])
  %wins  = aten.unfold(%b, 1, 3, 1)
  %sums  = aten.unfold_backward(%wins, [6, 5], 1, 3, 1)
  %steps = aten.diff(%b, 2, 0)
  %few   = aten.remainder.Scalar(%i, 4)
  %row   = aten.select.int(%i, 0, 2)
  %in    = aten.isin.Tensor_Tensor(%few, %row)
  %line  = aten.linspace(-1.0, 3.0, 11, dtype=f32)
  %dist  = aten._cdist_forward(%a, %a, 3.0, none)
  %slope = aten._cdist_backward(%dist, %a, %a, 3.0, %dist)
  output %cols
  output %back
  output %sums
  output %steps
  output %in
  output %line
  output %dist
  output %slope
'''

# Cross entropy of classes, as the data names them, and Fourier transforms: near what the processor has.
CLASSES = '''sg 1.0
graph rank *
  input %a : f32[6, 5] "a"
  input %t : i64[6] "t"
  %whole = aten.cross_entropy_loss(%a, %t, none, 1, 2, 0.1)
  %planes = aten.view(%a, [1, 5, 2, 3])
  %at = aten.view(%t, [1, 2, 3])
  %each, %total = aten.nll_loss2d_forward(%planes, %at, none, 0, 2)
  %dx = aten.nll_loss2d_backward(%each, %planes, %at, none, 0, 2, %total)
  %waves = aten._fft_r2c(%a, [0, 1], 1, true)
  %again = aten._fft_c2r(%waves, [0, 1], 1, 5)
  %turns = aten._fft_c2c(%waves, [0], 0, false)
  %parts = aten.view_as_real(%turns)
  output %whole
  output %each
  output %dx
  output %again
  output %parts
'''

# Draws that are new in each step, and a number for the host in the middle: recorded in two segments.
RECORDED = '''sg 1.0
graph rank *
  input %a : f32[6, 5] "a"
  %r1 = aten.rand_like(%a)             : f32[6, 5] stream 1
  %m1 = aten.mul.Tensor(%a, %r1)       : f32[6, 5]
  %f1 = aten.flip(%m1, [1])            : f32[6, 5]
  %t1 = aten.tril(%f1)                 : f32[6, 5]
  %s1 = aten.sum(%t1)                  : f32[]
  %n  = aten._local_scalar_dense(%s1)  : float
  %m2 = aten.mul.Tensor(%m1, %n)       : f32[6, 5]
  %r2 = aten.bernoulli.p(%m2, 0.5)     : f32[6, 5] stream 2
  %m3 = aten.mul.Tensor(%m2, %r2)      : f32[6, 5]
  %c  = aten.cumsum(%m3, 1)            : f32[6, 5]
  %d  = aten.triu(%c, 1)               : f32[6, 5]
  %e  = aten.roll(%d, [1], [0])        : f32[6, 5]
  output %e
'''

# Sums that several blocks share: of columns, of rows, of all there is; gradients of a norm's parameters.
# Running sums and products of whole numbers, along rows and across them, of flags, and in place.
RUNNING = '''sg 1.0
graph rank *
  input %i : i64[9, LENGTH] "i"
  %rows = aten.cumsum(%i, 1)
  %down = aten.cumsum(%i, 0)
  %some = aten.gt.Scalar(%i, 3)
  %flags = aten.cumsum(%some, -1)
  %made = aten.cumprod(%i, 0)
  %odd = aten.bitwise_or.Scalar(%i, 1)
  %products = aten.cumprod(%odd, 1)
  %copy = aten.clone(%i)
  %here = aten.cumsum_(%copy, 0)
  output %rows
  output %down
  output %flags
  output %made
  output %products
  output %here
'''

# Norms of all numbers, in strides too, of columns and of short rows; a largest one has no sum.
LONG_NORMS = '''sg 1.0
graph rank *
  input %x : f32[300, 70] "x"
  input %h : bf16[9000, 2] "h"
  %c  = aten.mul.Tensor(%x, %x)
  %n0 = aten.linalg_vector_norm(%c)
  %t  = aten.transpose.int(%x, 0, 1)
  %d  = aten.neg(%t)
  %n1 = aten.linalg_vector_norm(%d, 3.0)
  %e  = aten.abs(%h)
  %n2 = aten.linalg_vector_norm(%e, 0.0)
  %f  = aten.mul.Scalar(%x, 2.0)
  %n3 = aten.linalg_vector_norm(%f, 1.0)
  %g  = aten.mul.Scalar(%x, 3.0)
  %n4 = aten.linalg_vector_norm(%g, 2.0, [0])
  %k  = aten.mul.Scalar(%x, 5.0)
  %n5 = aten.linalg_vector_norm(%k, inf)
  output %n0
  output %n1
  output %n2
  output %n3
  output %n4
  output %n5
'''

LONG_SUMS = '''sg 1.0
graph rank *
  input %x : f32[3, 700, 45] "x"
  input %h : bf16[9000, 2] "h"
  input %w : f32[45] "w"
  %columns = aten.sum.dim_IntList(%x, [0, 1])
  %means   = aten.mean.dim(%x, [0, 1], true)
  %all     = aten.sum(%x)
  %turned  = aten.t(%h)
  %rows    = aten.mean.dim(%turned, [1])
  %few     = aten.sum.dim_IntList(%x, [1, 2])
  %y, %mean, %rstd = aten.native_layer_norm(%x, [45], %w, %w, 1e-5)
  %dx, %dw, %db    = aten.native_layer_norm_backward(%y, %x, [45], %mean, %rstd, %w, %w, [true, true, true])
  output %columns
  output %means
  output %all
  output %rows
  output %few
  output %dx
  output %dw
  output %db
'''

# Attention of f32 under a mask by which some queries see nothing, forward and backward.
MASKED = '''sg 1.0
graph rank *
  input %q : f32[1, 2, 5, 8] "q"
  input %n : i64[5, 7] "n"
  input %k : f32[1, 2, 7, 8] "k"
  %m = aten.gt.Scalar(%n, 0)
  %o = aten.scaled_dot_product_attention(%q, %k, %k, %m)
  %bias = aten.log(%n)
  %p, %l = aten._scaled_dot_product_flash_attention_for_cpu(%q, %k, %k, 0.0, false, attn_mask=%bias)
  %dq, %dk, %dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(%q, %q, %k, %k, %p, %l, 0.0, false, attn_mask=%bias)
  output %o
  output %p
  output %l
  output %dq
  output %dk
  output %dv
'''

# Biases that learn: their gradients add up over what shares them.
BIASED = '''sg 1.0
graph rank *
  input %q : f32[2, 4, 5, 8] "q"
  input %k : f32[2, 4, 7, 8] "k"
  input %b : TYPE "b"
  %o, %l, %s, %r = aten._scaled_dot_product_efficient_attention(%q, %k, %k, %b, true)
  %dq, %dk, %dv, %db = aten._scaled_dot_product_efficient_attention_backward(%q, %q, %k, %k, %b, %o, %l, %s, %r, 0.0, [true, true, true, true])
  output %dq
  output %dk
  output %db
'''

# Attention that drops weights, other ones at each step: what the way back knows of it lies on the device.
DROPOUT = '''sg 1.0
graph rank *
  input %q : f32[2, 4, 20, 8] "q"
  %e = aten.exp(%q)
  %o, %l, %cq, %ck, %mq, %mk, %rng, %unused, %d = aten._scaled_dot_product_flash_attention(%e, %q, %q, 0.3, true)  stream 1
  %g = aten.cos(%o)
  %s = aten.detach(%rng)
  %dq, %dk, %dv = aten._scaled_dot_product_flash_attention_backward(%g, %e, %q, %q, %o, %l, none, none, %mq, %mk, 0.3, true, %s, %unused)
  output %o
  output %dq
  output %dk
  output %dv
  output %s
'''

# FlexAttention and its gradient: heads that share keys, keys that batches share, a row that sees nothing, sizes that are
# symbols; scores that a table changes by head, masks by document. ROW stands for a step that lanes do not run together.
FLEX = '''sg 1.0
graph rank *
  symbol s0 input [1, 100] hint 37
  input %q : TYPE[2, 4, s0, 8] "q"
  input %k : TYPE[1, 2, 45, 8] "k"
  input %v : TYPE[1, 2, 45, 6] "v"
  input %g : TYPE[2, 4, s0, 6] "g"
  input %gl : WIDE[2, 4, s0] "gl"
  input %table : TYPE[2, 4, 7] "table"
  input %doc : i32[100] "doc"
  %o, %l, %m = higher_order.flex_attention(%q, %k, %v, graph:score, [1, graph:mask], 0.4, {}, [%table], [%doc])
  %dq, %dk, %dv, %no = higher_order.flex_attention_backward(%q, %k, %v, %o, %l, %g, %gl, graph:score, graph:joint, [1, graph:mask], 0.4, {}, [%table], [%doc])
  output %o
  output %l
  output %m
  output %dq
  output %dk
  output %dv
graph rank * nested score
  input %s : TYPE[]
  input %b : i32[]
  input %h : i32[]
  input %i : i32[]
  input %j : i32[]
  input %table : TYPE[2, 4, 7]
  %tanh = aten.tanh(%s)
  %mul = aten.mul.Tensor(%tanh, 2.0)
  %add = aten.add.Tensor(%i, %j)
  %rem = aten.remainder.Scalar(%add, 7)
  %bias = aten.index.Tensor(%table, [%b, %h, %rem])
  %row = aten.index.Tensor(%table, [%b, %h])
  %one = ROW
  %more = aten.mul.Tensor(%one, %b)
  %out1 = aten.add.Tensor(%mul, %bias)
  %out2 = aten.add.Tensor(%out1, %more)
  output %out2
graph rank * nested joint
  input %s : TYPE[]
  input %b : i32[]
  input %h : i32[]
  input %i : i32[]
  input %j : i32[]
  input %g : TYPE[]
  input %table : TYPE[2, 4, 7]
  %tanh = aten.tanh(%s)
  %mul = aten.mul.Tensor(%g, 2.0)
  %out = aten.tanh_backward(%mul, %tanh)
  output %out
  none
  none
  none
  none
  none
graph rank * nested mask
  input %b : i32[]
  input %h : i32[]
  input %i : i32[]
  input %j : i32[]
  input %doc : i32[100]
  %sub = aten.sub.Tensor(%j, 10)
  %near = aten.ge.Tensor(%i, %sub)
  %di = aten.index.Tensor(%doc, [%i])
  %dj = aten.index.Tensor(%doc, [%j])
  %same = aten.eq.Tensor(%di, %dj)
  %some = aten.ne.Scalar(%i, 3)
  %and = aten.bitwise_and.Tensor(%near, %same)
  %and2 = aten.bitwise_and.Tensor(%and, %some)
  output %and2
'''

# An op that the host computes.
BY_HOST = '''sg 1.0
graph rank *
  input %a : f32[6, 5] "a"
  %s = aten.tanh(%a)                                    : f32[6, 5]
  %v = aten.slice.Tensor(%s, 0, 0, 5)                   : f32[5, 5]
  %c = aten.linalg_matrix_exp(%v)                       : f32[5, 5]
  %t = aten.tanh(%c)                                    : f32[5, 5]
  output %t
'''

PICK = '''sg 1.0
graph rank *
  input %w : f32[6, 5] "a"
  input %i : i64[6, 5] "i"
  %rows = aten.embedding(%w, %i) : f32[6, 5, 5]
  output %rows
'''

# Fewer sources than destinations: by elements, by rows, as indices of two axes; and once more sources than destinations.
FEW_AMONG_MANY = '''sg 1.0
graph rank *
  input %x : f32[70, 300] "x"
  input %i : i64[70, 3] "i"
  input %s : f32[70, 3] "s"
  input %k : i64[40] "k"
  input %g : f32[40, 300] "g"
  input %w : i64[70, 3] "w"
  %picked   = aten.gather(%x, 1, %i)
  %zeros    = aten.zeros_like(%x)
  %added    = aten.scatter_add(%zeros, 1, %i, %s)
  %largest  = aten.scatter_reduce.two(%x, 1, %i, %s, "amax", include_self=false)
  %mean     = aten.scatter_reduce.two(%x, 1, %i, %s, "mean")
  %whole    = aten._to_copy(%x, dtype=i64)
  %wholes   = aten.scatter_add(%whole, 1, %i, %w)
  %rows     = aten.embedding_dense_backward(%g, %k, 70, 3, false)
  %columns  = aten.select.int(%i, 1, 0)
  %places   = aten.slice.Tensor(%columns, 0, 0, 40)
  %values   = aten.select.int(%g, 1, 0)
  %put      = aten.index_put(%x, [%k, %places], %values)
  %sums     = aten.index_put(%x, [%k, %places], %values, true)
  %turned   = aten.t(%x)
  %small    = aten.slice.Tensor(%x, 0, 0, 30)
  %marked   = aten.remainder.Scalar(%k, 30)
  %back     = aten.index_add(%small, 0, %marked, %g)
  output %picked
  output %added
  output %largest
  output %mean
  output %wholes
  output %rows
  output %put
  output %sums
  output %back
'''

# Memory that is set to zero at once, and a number that is not zero.
ZEROS = '''sg 1.0
graph rank *
  input %x : f32[6, 5] "x"
  %turned = aten.t(%x)
  %a = aten.zeros_like(%turned)
  %b = aten.full_like(%x, 0.0, dtype=bf16)
  %c = aten.zeros_like(%x, dtype=bool)
  %d = aten.full_like(%x, -0.0)
  %e = aten.slice_backward(%x, [9, 5], 0, 2, 8, 1)
  %f = aten.slice_backward(%x, [6, 45], 1, 2, 7, 1)
  output %a
  output %b
  output %c
  output %d
  output %e
  output %f
'''

# Draws that share a block of the generator's numbers, and three that do not.
RANDOM = '''sg 1.0
graph rank *
  input %x : f32[41, 67] "x"
  %turned = aten.t(%x)
  %y, %mask = aten.native_dropout(%turned, 0.3, true) stream 1
  %z = aten.dropout(%x, 0.5, true) stream 2
  %u = aten.rand_like(%x) stream 3
  %n = aten.randn_like(%x, dtype=bf16) stream 4
  %f = aten.bernoulli.p(%x, 0.25) stream 5
  %wide = aten.rand_like(%x, dtype=f64) stream 6
  %e = aten.randint_like(%x, 1000) stream 7
  %part = aten.rand_like(%x) stream 8 origin [82, 70] at [41, 3]
  output %y
  output %mask
  output %z
  output %u
  output %n
  output %f
  output %wide
  output %e
  output %part
'''

# More rows than a block adds up.
MANY_CLASSES = '''sg 1.0
graph rank *
  input %x : f32[3000, 5] "x"
  input %t : i64[3000] "t"
  %y = aten._log_softmax(%x, 1, false)
  %l, %n = aten.nll_loss_forward(%y, %t, none, REDUCTION, 3)
  output %l
  output %n
'''

# Operands whose rows or columns do not lie side by side: of an expanded number, of every second column, of axes that change
# places; and two that are small.
STRIDED_PRODUCTS = '''sg 1.0
graph rank *
  input %x : f32[64, 80] "x"
  input %w : f32[40, 64] "w"
  input %g : f32[] "g"
  input %h : bf16[4, 16, 24, 8] "h"
  %some   = aten.slice.Tensor(%x, 1, 0, 80, 2)
  %a      = aten.mm(%some, %w)
  %same   = aten.expand(%g, [64, 80])
  %turned = aten.t(%x)
  %b      = aten.mm(%turned, %same)
  %c      = aten.addmm(%a, %some, %w, alpha=0.5)
  %axes   = aten.permute(%h, [0, 1, 3, 2])
  %apart  = aten.slice.Tensor(%axes, 3, 0, 24, 2)
  %rows   = aten.slice.Tensor(%h, 3, 0, 8, 2)
  %even   = aten.slice.Tensor(%rows, 2, 0, 12)
  %left   = aten.select.int(%apart, 1, 3)
  %right  = aten.select.int(%even, 1, 2)
  %d      = aten.bmm(%left, %right)
  %little = aten.slice.Tensor(%some, 0, 0, 2)
  %e      = aten.mm(%little, %w)
  output %a
  output %b
  output %c
  output %d
  output %e
'''
