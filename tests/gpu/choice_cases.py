"""Cases of run_gpu_tests.py: permutations and samples, whose lanes find what the processor finds step by step."""
import random
import struct

CHOICES = '''sg 1.0
graph rank *
  input %w : f64[ROWS, CLASSES] "w"
  %p = aten.randperm(LENGTH)                    : i64[LENGTH]  stream 1
  %a = aten.multinomial(%w, DRAWN, false)       : i64[ROWS, DRAWN]  stream 2
  %b = aten.multinomial(%w, 500, true)          : i64[ROWS, 500]  stream 3
  output %p
  output %a
  output %b
'''

# length, rows, classes, drawn; permutations of 1 to 3 have many steps that hit the same places
CASES = ((1, 1, 1, 1), (2, 2, 300, 3), (3, 1, 5, 4), (700, 3, 1000, 270), (3001, 2, 256, 100), (60000, 5, 40, 20))
LANES = (0, 2, 3)


def weights(rng, rows, classes):
    """Some are 0, and some equal: of equal marks the first counts."""
    numbers = [rng.choice((0.25, 0.5, rng.random())) if (i % classes) % 4 else 0.0 if i % classes else 1.0 for i in range(rows * classes)]
    return 'F64', (rows, classes), struct.pack(f'<{len(numbers)}d', *numbers)


class ChoiceCases:
    def __init__(self, tests, at):
        self.tests, self.at = tests, at

    def run(self):
        for case in CASES:
            self.held(*case)
        self.refused()

    def run_lanes(self):
        for i in LANES:
            self.held(*CASES[i])

    def held(self, length, rows, classes, drawn):
        graph = CHOICES
        for word, size in (('LENGTH', length), ('ROWS', rows), ('CLASSES', classes), ('DRAWN', drawn)):
            graph = graph.replace(word, str(size))
        self.tests.against_processor(f'choices, {length}, {drawn} of {rows} x {classes}', self.at, graph,
                                     {'w': weights(random.Random(length), rows, classes)})

    def refused(self):
        graph = CHOICES.replace('ROWS', '2').replace('CLASSES', '600').replace('DRAWN', '3').replace('LENGTH', '5')
        for numbers, said in (([1.0] * 1000 + [-2.0] + [1.0] * 199, '-2.0+ is not a value that the op takes'), ([1.0] * 602 + [0.0] * 598, r'index 3 is out of range for size 2')):
            self.tests.refused_by_device(f'choices: {said}', self.at, graph, {'w': ('F64', (2, 600), struct.pack('<1200d', *numbers))},
                                         '%a = aten.multinomial.default: ' + said)
