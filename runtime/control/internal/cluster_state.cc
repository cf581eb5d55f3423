#include "runtime/control/internal/cluster_state.h"

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace troupe::runtime::internal {

absl::Status ClusterState::Handle(const std::string& peer, const control::Message& message, absl::Time now) {
  const auto agent = agents_.find(peer);
  if (agent != agents_.end()) agent->second.last_heard = now;
  const absl::Status status = Dispatch(peer, message, now);
  if (!status.ok()) outbox_.Answer(peer, message, status);
  std::erase_if(jobs_, [](const auto& job) { return job.second->ended(); });
  return status;
}

absl::Status ClusterState::Dispatch(const std::string& peer, const control::Message& message, absl::Time now) {
  if (message.has_heartbeat()) {
    outbox_.Send(peer, message);
    return absl::OkStatus();
  }
  if (message.has_agent_hello()) return AddAgent(peer, message, now);
  if (message.has_submit_job()) return SubmitJob(peer, message, now);
  const auto job = jobs_.find(message.job_epoch());
  if (job == jobs_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", absl::Hex(message.job_epoch(), absl::kZeroPad16), " does not run in this cluster"));
  }
  return job->second->Handle(peer, message, now);
}

absl::Status ClusterState::AddAgent(const std::string& peer, const control::Message& message, absl::Time now) {
  const control::AgentHello& hello = message.agent_hello();
  if (hello.protocol() != kControlProtocol) {
    return absl::FailedPreconditionError(absl::StrCat("the agent on ", hello.host(), " speaks version ", hello.protocol(),
                                                      " of the control protocol, the coordinator ", kControlProtocol));
  }
  agents_[peer] = {hello.host(), hello.cores(), now};
  outbox_.Answer(peer, message, absl::OkStatus());
  return absl::OkStatus();
}

absl::Status ClusterState::SubmitJob(const std::string& peer, const control::Message& message, absl::Time now) {
  const control::SubmitJob& spec = message.submit_job();
  const auto driver = agents_.find(spec.driver_agent());
  if (driver == agents_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("the driver's agent ", spec.driver_agent(), " is not there"));
  }
  const uint64_t epoch = next_epoch_++;
  auto& job = jobs_[epoch];
  job = std::make_unique<JobState>(epoch, peer, spec, options_.job_times, &outbox_);
  control::Answer answer;
  answer.set_job_epoch(epoch);
  outbox_.Answer(peer, message, absl::OkStatus(), std::move(answer));
  job->Start({driver->first, driver->second.host}, PlaceWorkers(spec.num_workers()), now);
  return absl::OkStatus();
}

std::vector<Placement> ClusterState::PlaceWorkers(int count) const {
  std::vector<Placement> places;
  while (static_cast<int>(places.size()) < count) {
    for (const auto& [name, agent] : agents_) {
      const int left = count - static_cast<int>(places.size());
      places.insert(places.end(), static_cast<size_t>(std::min(agent.cores, left)), Placement{name, agent.host});
    }
  }
  return places;
}

void ClusterState::LoseAgent(const std::string& peer, const absl::Status& why, absl::Time) {
  LogError(std::string(why.message()));
  agents_.erase(peer);
  for (const auto& [epoch, job] : jobs_) job->OnAgentLost(peer, why);
}

void ClusterState::Tick(absl::Time now) {
  std::vector<std::pair<std::string, absl::Status>> lost;
  for (const auto& [peer, agent] : agents_) {
    if (now - agent.last_heard <= options_.lease) continue;
    lost.emplace_back(peer, absl::UnavailableError(absl::StrCat("host ", agent.host, " has not been heard of for ",
                                                                absl::FormatDuration(now - agent.last_heard))));
  }
  for (const auto& [peer, why] : lost) LoseAgent(peer, why, now);
  for (const auto& [epoch, job] : jobs_) job->Tick(now);
  std::erase_if(jobs_, [](const auto& job) { return job.second->ended(); });
}

absl::Time ClusterState::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  // The lease is over only when it is exceeded.
  for (const auto& [peer, agent] : agents_) next = std::min(next, agent.last_heard + options_.lease + absl::Milliseconds(1));
  for (const auto& [epoch, job] : jobs_) next = std::min(next, job->NextDeadline());
  return next;
}

void ClusterState::ForgiveSilence(absl::Time now) {
  for (auto& [peer, agent] : agents_) agent.last_heard = now;
}

std::vector<Outgoing> ClusterState::TakeOutgoing() { return outbox_.Take(); }

}  // namespace troupe::runtime::internal
