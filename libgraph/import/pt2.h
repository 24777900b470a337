// Import of torch.export archives (.pt2): what torch.export.save wrote becomes a Job of one rank, its weights and
// constants tensors.
//
// What     Archives of PyTorch's schema 8 (torch 2.6 and newer), zip, in all layouts that PyTorch has written.
//          Parameters, buffers and constants become inputs; symbols keep their ranges; mutated buffers and losses keep
//          their kind.
// Never    Nothing is unpickled or run. Weights that an older torch has pickled stay where they are,
//          and that is said.
// Lost     Of stack traces the innermost line outside of torch is kept; `torch_fn`, `source_fn_stack` and `from_node`
//          are left out.
// Errors   `unreadable`: archive, entry, JSON path. See zip_archive.h for the bounds on what a file may claim.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/data/safetensors.h"
#include "libgraph/job.h"

namespace sg {

struct Pt2Options {
  std::string model;  // which one of several; empty = the only one
};

struct Pt2Import {
  Job job;
  std::vector<TensorToWrite> tensors;  // by the FQN of their input, or its name where the FQN would be ambiguous
  std::shared_ptr<const void> owner;   // of the tensors' bytes
};

// `bytes` is needed during the call only.
Result<Pt2Import> import_pt2(std::string_view bytes, const std::string& name, const Pt2Options& options,
                             Diagnostics* notes);

// The program alone: the JSON of one model, as it lies in the archive. What import_pt2 does below the zip.
Result<Job> import_exported_program(std::string json, const std::string& name, Diagnostics* notes);

// What an archive holds, from its directory and its models' headers: for people, and as JSON.
struct Pt2Listing {
  std::string text, json;
};
Result<Pt2Listing> list_pt2(std::string_view bytes, const std::string& name);

}  // namespace sg
