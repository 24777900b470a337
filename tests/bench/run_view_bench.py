#!/usr/bin/env python3
"""run_view_bench.py --bin BIN [--nodes N] [--rounds K]: the page of sg-view in a headless Chromium.

When the page of N generated nodes (100,000) has drawn itself, and how long a search takes; the targets are 2 s and 200 ms.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import skip  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--bin', required=True)
    parser.add_argument('--nodes', type=int, default=100000)
    parser.add_argument('--rounds', type=int, default=5)
    options = parser.parse_args()
    browser = shutil.which('chromium') or shutil.which('google-chrome')
    if not browser:
        return skip('there is no Chromium here')
    with tempfile.TemporaryDirectory() as folder:
        job, page = os.path.join(folder, 'job.sg'), os.path.join(folder, 'page.html')
        subprocess.run([os.path.join(options.bin, 'make_job'), '--nodes', str(options.nodes), '--seed', '1', '-o', job],
                       check=True)
        begin = time.monotonic()
        subprocess.run([os.path.join(options.bin, 'sg-view'), job, '-o', page], check=True)
        print(f'{options.nodes} nodes: written in {time.monotonic() - begin:.2f} s, {os.path.getsize(page) / 1e6:.1f} MB')
        paints, searches = [], []
        for _ in range(options.rounds):
            words = [browser, '--headless', '--no-sandbox', '--disable-gpu', '--window-size=1600,950',
                     '--timeout=10000', '--dump-dom']
            document = subprocess.run([*words, f'file://{page}#q=softmax'], capture_output=True, check=True).stdout.decode()
            times = {key: float(value) for key, value in re.findall(r'data-(paint|search)-ms="([\d.]+)"', document)}
            paints.append(times['paint'])
            searches.append(times['search'])
    print(f'drawn after {statistics.median(paints):.0f} ms ({min(paints):.0f}..{max(paints):.0f}), target 2000')
    print(f'a search    {statistics.median(searches):.0f} ms ({min(searches):.0f}..{max(searches):.0f}), target 200')
    return 0


if __name__ == '__main__':
    sys.exit(main())
