#include "engine/comm/communicator.h"

#include <cstring>

#include "runtime/base/check.h"

namespace troupe::engine {

absl::Status SingleCommunicator::AllGather(absl::Span<const std::byte> send, absl::Span<std::byte> recv) {
  TROUPE_CHECK_EQ(send.size(), recv.size());
  if (!send.empty() && send.data() != recv.data()) std::memcpy(recv.data(), send.data(), send.size());
  return absl::OkStatus();
}

absl::Status SingleCommunicator::ReduceScatter(absl::Span<const float> send, absl::Span<float> recv) {
  TROUPE_CHECK_EQ(send.size(), recv.size());
  if (!send.empty() && send.data() != recv.data()) std::memcpy(recv.data(), send.data(), send.size() * sizeof(float));
  return absl::OkStatus();
}

absl::Status SingleCommunicator::AllReduce(absl::Span<float>) { return absl::OkStatus(); }

}  // namespace troupe::engine
