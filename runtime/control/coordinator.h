/// The one place of a cluster that knows who is alive: agents, nodes, names, restart budgets, and how a job ends.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace troupe::runtime {

struct CoordinatorOptions {
  /// `ipc://@name` is an abstract socket of this host: it leaves no file, and only processes of this user may connect.
  /// Empty: such a socket with a random name. `tcp://127.0.0.1:port` is for tests; other addresses are refused, because what
  /// comes from another host must be encrypted and authenticated.
  std::string endpoint;
  absl::Duration host_lease = absl::Seconds(3);  ///< a silent host is dead after this
};

/// Threads  has a thread of its own, which no other work can delay.
class Coordinator {
 public:
  /// Errors  INVALID_ARGUMENT or UNAVAILABLE naming the endpoint.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& endpoint() const { return endpoint_; }

 private:
  class Loop;
  Coordinator() = default;

  std::string endpoint_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

/// 16 hex digits that no other process will come up with.
std::string RandomName();

}  // namespace troupe::runtime
