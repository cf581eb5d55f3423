/// Passes errors of the world (peers, files, messages, flags) up the stack: absl::Status and the macros that return it.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace troupe {

/// The same code with `context: ` in front of the message.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace troupe

#define TROUPE_RETURN_IF_ERROR(expression)                   \
  do {                                                       \
    ::absl::Status troupe_status_ = (expression);            \
    if (!troupe_status_.ok()) return troupe_status_;         \
  } while (false)

#define TROUPE_CONCAT_INNER_(a, b) a##b
#define TROUPE_CONCAT_(a, b) TROUPE_CONCAT_INNER_(a, b)

/// TROUPE_ASSIGN_OR_RETURN(auto x, F()): declares or assigns the value, or returns the error.
#define TROUPE_ASSIGN_OR_RETURN(lhs, expression) \
  TROUPE_ASSIGN_OR_RETURN_(TROUPE_CONCAT_(troupe_status_or_, __LINE__), lhs, expression)
#define TROUPE_ASSIGN_OR_RETURN_(holder, lhs, expression) \
  auto holder = (expression);                             \
  if (!holder.ok()) return std::move(holder).status();    \
  lhs = std::move(holder).value()
