/// Messages that the coordinator has decided to send.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/control/control.pb.h"
#include "runtime/control/internal/wire.h"

namespace troupe::runtime::internal {

struct Outgoing {
  std::string peer;
  control::Message message;
};

class Outbox {
 public:
  void Send(const std::string& peer, control::Message message) { messages_.push_back({peer, std::move(message)}); }

  /// Answers `question`, unless it expects no answer.
  void Answer(const std::string& peer, const control::Message& question, const absl::Status& status,
              control::Answer answer = {}) {
    if (question.request() == 0) return;
    control::Message message;
    message.set_job_epoch(question.job_epoch());
    message.set_request(question.request());
    *answer.mutable_status() = ToControl(status);
    *message.mutable_answer() = std::move(answer);
    Send(peer, std::move(message));
  }

  std::vector<Outgoing> Take() { return std::exchange(messages_, {}); }

 private:
  std::vector<Outgoing> messages_;
};

}  // namespace troupe::runtime::internal
