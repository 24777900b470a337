#include "tools/reduce/search.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "libgraph/base/parallel.h"
#include "libgraph/edit/shrink.h"
#include "libgraph/verify/verify.h"

namespace sg::reduce {
namespace {

class Search {
 public:
  Search(Job job, const SearchOptions& options) : options_(options) { out_.job = std::move(job); }

  Result<Found> run() {
    SG_TRY(halve_ranks());
    SG_TRY(reduce_all());
    if (!options_.keep_metadata) {
      SG_TRY(simplify());
      SG_TRY(reduce_all());  // parts that only metadata kept alive
    }
    out_.complete = !stopped_;
    return std::move(out_);
  }

 private:
  using Make = std::function<Job(size_t)>;

  // Tests candidates [0, count) concurrently: the first yes becomes the job. Returns its index; none = no candidate
  // passed.
  Result<std::optional<size_t>> first_of(size_t count, const Make& make) {
    std::vector<Result<Answer>> answers(count, Answer::no);
    std::vector<std::optional<Job>> jobs(count);
    std::vector<uint8_t> valid(count, 0);
    parallel_for(count, count, [&](size_t i) {
      jobs[i].emplace(make(i));
      Diagnostics findings(1);
      verify(*jobs[i], VerifyOptions(), &findings);
      valid[i] = !findings.has_errors();
      if (valid[i]) answers[i] = options_.ask(*jobs[i], i);
    });
    std::optional<size_t> found;
    for (size_t i = 0; i < count; ++i) {
      if (!answers[i].ok()) return answers[i].error();
      (valid[i] ? out_.asked : out_.invalid)++;
      out_.skipped += *answers[i] == Answer::skip;
      stopped_ = stopped_ || *answers[i] == Answer::stopped;
      if (!found && *answers[i] == Answer::yes) found = i;
    }
    if (found) {
      out_.job = std::move(*jobs[*found]);
      if (options_.progress) options_.progress(out_.job, out_.asked);
    }
    return found;
  }

  // Something that the job has a number of, and the job without those of [begin, end).
  struct Kind {
    std::function<size_t(const Job&)> count;
    std::function<Job(const Job&, size_t, size_t)> without;
    bool all = true;  // may all go at once
  };

  static Kind parts(Part part, PartScope scope) {
    return {[=](const Job& job) { return count_parts(job, part, scope); },
            [=](const Job& job, size_t begin, size_t end) { return without_parts(job, part, scope, begin, end); },
            scope == PartScope::all_ranks};
  }
  static Kind ranks() {
    return {[](const Job& job) { return job.world > 1 ? size_t{job.world} : 0; },
            [](const Job& job, size_t begin, size_t end) {
              return without_ranks(job, static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
            },
            false};
  }

  // While half of the ranks can go: a job of fewer ranks takes less time to ask about.
  Status halve_ranks() {
    for (bool fewer = !options_.keep_ranks; fewer && out_.job.world > 1 && !stopped_;) {
      SG_ASSIGN(fewer, sweep(ranks(), (size_t{out_.job.world} + 1) / 2));
    }
    return ok_status();
  }

  // Until no single part of any kind can be removed.
  Status reduce_all() {
    for (bool moved = true; moved && !stopped_;) {
      moved = false;
      for (PartScope scope : {PartScope::all_ranks, PartScope::each_rank}) {
        if (scope == PartScope::each_rank && out_.job.programs.size() < 2) continue;  // the same parts again
        for (Part part : {Part::node, Part::output, Part::guard, Part::symbol}) {
          SG_ASSIGN(bool fewer, reduce(parts(part, scope)));
          moved = moved || fewer;
        }
      }
      if (options_.keep_ranks) continue;
      SG_ASSIGN(bool fewer, reduce(ranks()));
      moved = moved || fewer;
    }
    return ok_status();
  }

  // True = some parts were removed.
  Result<bool> reduce(const Kind& kind) {
    bool fewer = false;
    size_t begun_with = kind.count(out_.job);
    if (!kind.all) begun_with = (begun_with + 1) / 2;
    for (size_t chunk = begun_with; begun_with != 0 && !stopped_; chunk = (chunk + 1) / 2) {
      SG_ASSIGN(bool some, sweep(kind, chunk));
      fewer = fewer || some;
      if (chunk == 1) break;
    }
    return fewer;
  }

  // Tries to remove pieces of `chunk` parts, from the end to the beginning.
  Result<bool> sweep(const Kind& kind, size_t chunk) {
    bool fewer = false;
    size_t end = kind.count(out_.job);
    while (end > 0 && !stopped_) {
      size_t pieces = std::min(options_.threads, (end + chunk - 1) / chunk);
      auto begin_of = [&](size_t i) { return end - i * chunk > chunk ? end - (i + 1) * chunk : 0; };
      auto make = [&](size_t i) { return kind.without(out_.job, begin_of(i), end - i * chunk); };
      SG_ASSIGN(std::optional<size_t> found, first_of(pieces, make));
      fewer = fewer || found;
      // Pieces after this one have been tested: continue before it.
      end = begin_of(found ? *found : pieces - 1);
      end = std::min(end, kind.count(out_.job));
    }
    return fewer;
  }

  Status simplify() {
    for (const Simplification& s : simplifications()) {
      if (stopped_) break;
      auto make = [&](size_t) {
        Job candidate(out_.job);
        s.apply(&candidate);
        return candidate;
      };
      SG_TRY(first_of(1, make));
    }
    return ok_status();
  }

  const SearchOptions& options_;
  Found out_;
  bool stopped_ = false;
};

}  // namespace

Result<Found> shrink(Job job, const SearchOptions& options) { return Search(std::move(job), options).run(); }

}  // namespace sg::reduce
