/// Errors that cross processes as data: code, message and the chain of actors that they came through.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace troupe::runtime {

/// One actor that an error came through.
struct ErrorOrigin {
  std::string actor;
  int rank = -1;
  std::string host;
  std::string method;
  std::string message;  ///< as the method returned it
};

/// `status` as its caller sees it: `trainer[2] (rank 2, host h): forward_backward: no such file`; the chain grows by `origin`.
absl::Status AddOrigin(const absl::Status& status, ErrorOrigin origin);

/// From the innermost cause outwards; empty for an error of this process.
std::vector<ErrorOrigin> ErrorChain(const absl::Status& status);

/// `trainer[2] (rank 2, host h)`.
std::string DescribeOrigin(absl::string_view actor, int rank, absl::string_view host);

/// Code, message and all payloads as bytes, and back.
std::string EncodeStatus(const absl::Status& status);
/// Errors  INVALID_ARGUMENT when `bytes` is no encoded status; never the decoded error itself.
absl::Status DecodeStatus(absl::string_view bytes, absl::Status* status);

/// Marks an error of a call that may or may not have run.
absl::Status OutcomeUnknown(absl::string_view what, const absl::Status& why);
bool IsOutcomeUnknown(const absl::Status& status);

}  // namespace troupe::runtime
