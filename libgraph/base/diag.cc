#include "libgraph/base/diag.h"

namespace sg {

void Diagnostics::add(Diagnostic d) {
  if (d.severity == Severity::error && ++error_count_ > max_errors_) {
    ++hidden_;
    return;
  }
  list_.push_back(std::move(d));
}

void Diagnostics::error(std::string rule, std::string message, Location where, std::string hint) {
  add({Severity::error, std::move(rule), std::move(message), std::move(where), std::move(hint), {}});
}

void Diagnostics::warning(std::string rule, std::string message, Location where, std::string hint) {
  add({Severity::warning, std::move(rule), std::move(message), std::move(where), std::move(hint), {}});
}

void Diagnostics::note(std::string message, Location where) {
  add({Severity::note, {}, std::move(message), std::move(where), {}, {}});
}

void Diagnostics::add(const Diagnostics& others) {
  for (const Diagnostic& d : others.list_) add(d);
  error_count_ += others.hidden_;
  hidden_ += others.hidden_;
}

Error Diagnostics::as_error(ErrorKind kind) const {
  for (const Diagnostic& d : list_) {
    if (d.severity != Severity::error) continue;
    Error error{kind, d.message, d.where, d.hint};
    if (error_count_ > 1) error.message += " (and " + std::to_string(error_count_ - 1) + " more)";
    return error;
  }
  return {ErrorKind::internal, "no error was recorded", {}, {}};
}

}  // namespace sg
