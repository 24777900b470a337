// How a tool gets its memory from the system.
#pragma once

namespace sg::cli {

// Called once, first thing. A tool reads a graph, works on it and ends: what it frees is soon wanted again and what it
// holds goes back when it ends. So the heap grows in large steps, its beginning is backed by large pages, and nothing
// is given back in between. Costs address space, not memory; where the system refuses, all stays as it is.
void prepare_memory();

}  // namespace sg::cli
