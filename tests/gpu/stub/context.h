// The context that is current in this thread, by the number of its device and 1 more; 0: none. Of the stand-in of the
// driver; those of other libraries ask it, too.
//
// What a device's libraries check, and a stand-in that knows one memory would let pass: a thread that has not said
// whose device its calls are for, and a stream of another device.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

extern "C" uintptr_t stub_current_context();
extern "C" int stub_stream_priority(CUstream stream);

// Of calls whose result nobody reads: on a device what they should give back would stay.
[[noreturn]] inline void ended_without_context(const char* call) {
  std::fprintf(stderr, "%s without its context\n", call);
  ::_exit(99);
}
