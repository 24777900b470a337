// What every importer keeps on the side: free key/values of one owner, and what is said once at the end instead of at
// each place. Internal to the importers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/pool.h"

namespace sg {

// Free key/values of one owner, collected in any order.
class Extras {
 public:
  void add(std::string key, std::string json) { list_.emplace_back(std::move(key), std::move(json)); }
  bool empty() const { return list_.empty(); }
  std::vector<KeyValue> take(Pool* pool);  // sorted by key; of equal keys the last

 private:
  std::vector<std::pair<std::string, std::string>> list_;
};

// Whatever can say where it stands. Working out a place may walk a whole text, so it is asked for only where it is
// told.
class Located {
 public:
  template <class Thing>
  Located(const Thing& thing)
      : thing_(&thing), where_([](const void* t) { return static_cast<const Thing*>(t)->where(); }) {}
  Location where() const { return where_(thing_); }

 private:
  const void* thing_;
  Location (*where_)(const void*);
};

class ImportTally {
 public:
  static constexpr uint32_t kNoRank = 0xFFFFFFFFu;
  void unknown_key(std::string_view owner, std::string_view key, Located at);
  void kept_raw(std::string_view what, Located at);  // a known key whose value has no place in the IR
  void unknown_op(std::string_view op, Located at);
  void taken_apart(std::string_view op);  // a composite whose parts took its place
  void kept_whole(std::string_view op, const std::string& reason, Located at);  // a composite that has stayed: opaque
  void own_rank_literal(std::string_view op, Located at);
  void type_conflict(Located at);
  void report(uint32_t spmd_rank /* or kNoRank */, Diagnostics* notes) const;

 private:
  struct Count {
    uint64_t count = 0;
    Location first;
  };
  using Counts = std::map<std::string, Count, std::less<>>;
  static void count(Counts* counts, std::string key, Located at);
  static std::string listing(const Counts& counts, uint64_t* total);
  void report_unknown_ops(Diagnostics* notes) const;
  Counts unknown_keys_, kept_raw_, unknown_ops_, own_rank_, taken_apart_, kept_whole_;
  Count type_conflicts_;
  Location first_unknown_op_;
};

}  // namespace sg
