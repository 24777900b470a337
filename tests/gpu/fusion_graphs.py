"""Random graphs of chains and reductions over the same rows, for fusion_cases.py: values of several types come and go, so that
the memory plan puts one over another, in rows of other lengths."""
REDUCTIONS = ('sum.dim_IntList(%{}, [-1], true)', 'mean.dim(%{}, [-1], true)', 'amax(%{}, [-1], true)', 'logsumexp(%{}, [-1], true)',
              'var.correction(%{}, [-1], correction=0, keepdim=true)', 'sum.dim_IntList(%{}, [-1], true, dtype=f64)')
BY_ROW = ('rsqrt(%{})', 'add.Scalar(%{}, 1.0)', '_to_copy(%{}, dtype=f64)', '_to_copy(%{}, dtype=bf16)', 'abs(%{})',
          'mul_.Scalar(%{}, 0.5)')
BY_ELEMENT = ('exp(%{})', 'tanh(%{})', 'mul.Tensor(%{}, %w)', '_to_copy(%{}, dtype=bf16)', '_to_copy(%{}, dtype=f64)', 'neg(%{})',
              'add_.Scalar(%{}, 1.0)', 'sigmoid(%{})')


def random_rows(rng):
    rows, n = rng.choice(((5,), (3, 4), (130,))), rng.choice((2, 6, 70))
    shape = [*rows, n]
    lines = ['sg 1.0', 'graph rank *', f'  input %x : f32{shape} "x"', f'  input %b : bf16{shape} "b"', f'  input %w : f32[{n}] "w"',
             '  %x1 = aten.flip(%x, [0])', '  %b1 = aten.flip(%b, [0])']
    elements, numbers, outputs = ['x1', 'b1'], [], []
    recent = lambda names: rng.choice(names[-3:])
    for k in range(rng.randint(6, 18)):
        name, choice = f'v{k}', rng.random()
        if choice < 0.3:
            call, kind = rng.choice(REDUCTIONS).format(recent(elements)), numbers
        elif choice < 0.5 and numbers:
            call, kind = rng.choice(BY_ROW).format(recent(numbers)), numbers
        elif choice < 0.75 and numbers:
            op = rng.choice(('add', 'mul', 'sub'))
            call, kind = f'{op}.Tensor(%{recent(elements)}, %{recent(numbers)})', elements
        else:
            call, kind = rng.choice(BY_ELEMENT).format(recent(elements)), elements
        lines.append(f'  %{name} = aten.{call}')
        kind.append(name)
        if rng.random() < 0.15:
            outputs.append(name)
    outputs = dict.fromkeys([*outputs, elements[-1], *numbers[-1:]])
    return '\n'.join([*lines, *(f'  output %{name}' for name in outputs)]) + '\n'
