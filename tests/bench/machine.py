"""The machine that figures were measured on."""
import os
import platform


def machine():
    """One line: processor, cores, kernel, and how busy it is."""
    with open('/proc/cpuinfo', encoding='utf-8') as file:
        model = next((line.split(':')[1].strip() for line in file if line.startswith('model name')), platform.machine())
    return f'{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}'
