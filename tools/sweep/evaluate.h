// Makes points known: from the file where they are there, else by running the recipe and scoring a stage's result.
//
// Shared     Stages that points have in common run once, and are kept in the cache of recipes.
// Failure    A point whose stage fails, or that has no score, is a point that failed: the others go on.
// Kept       Each point is in the file as soon as it is known. Points that failed for good (point.h) are not tried
//            again.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "libgraph/base/diag.h"
#include "tools/recipe/cache.h"
#include "tools/recipe/plan.h"
#include "tools/sweep/point.h"
#include "tools/sweep/score.h"

namespace sg::sweep {

struct EvaluateOptions {
  std::vector<std::string> set;  // of sg-recipe, for all points
  std::string stage;             // whose result is scored; empty = the last
  bool checks = false;           // assertions and runs of the recipe have to hold
  size_t threads = 1;
  std::function<Status(const recipe::Plan&)> planned;  // before any of it is run
  std::function<void(const Point&)> told;              // when a point is known; one at a time
};

class Evaluator {
 public:
  // `file`: null = only mistakes are looked for.
  Evaluator(const recipe::Recipe& recipe, Scoring scoring, EvaluateOptions options, recipe::Cache* cache,
            std::map<std::string, Point> known, PointFile* file)
      : recipe_(recipe),
        scoring_(std::move(scoring)),
        options_(std::move(options)),
        cache_(*cache),
        known_(std::move(known)),
        file_(file) {}

  // Fills in all that is not known of the points. Mistakes in the recipe or in values go to `problems`, and then
  // nothing has run. `are_given`: the values are the user's, and one that its option refuses whatever the others are is
  // a mistake; else it is a point that failed. The Error: the file of points cannot be written.
  Status evaluate(std::vector<Point>* points, bool are_given, Diagnostics* problems);
  // The mistakes alone: nothing runs.
  Status check(std::vector<Point>* points, Diagnostics* problems);

 private:
  struct Work;
  Status prepare(Work* work, bool are_given, Diagnostics* problems);
  void make_plan(Work* work, Diagnostics* problems);
  void make_plan_as_set(Work* work, Diagnostics* problems);
  void check_given(const Work& work, Diagnostics* problems) const;
  Status find_keys(const std::vector<uint32_t>& stands_for, Work* work);
  void finish(size_t point, Work* work);

  const recipe::Recipe& recipe_;
  Scoring scoring_;
  EvaluateOptions options_;
  recipe::Cache& cache_;
  std::map<std::string, Point> known_;
  PointFile* file_;
  recipe::ToolTable tools_;
};

}  // namespace sg::sweep
