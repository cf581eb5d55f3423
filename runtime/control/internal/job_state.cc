#include "runtime/control/internal/job_state.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace troupe::runtime::internal {
namespace {

constexpr size_t kMaxLookups = 10000;
constexpr size_t kMaxNames = 1000000;
constexpr int kSignalBase = 128;  // as a shell reports it

int32_t Milliseconds(absl::Duration duration) { return static_cast<int32_t>(absl::ToInt64Milliseconds(duration)); }

}  // namespace

JobState::JobState(uint64_t epoch, std::string launcher, control::SubmitJob spec, const JobTimes& times, Outbox* outbox)
    : epoch_(epoch), launcher_(std::move(launcher)), spec_(std::move(spec)), times_(times), outbox_(outbox) {}

void JobState::Start(const Placement& driver, const std::vector<Placement>& workers, absl::Time) {
  const auto add = [&](int32_t id, const Placement& place) {
    Process& process = processes_[id];
    process.agent = place.agent;
    process.node.set_id(id);
    process.node.set_rank(id - 1);
    process.node.set_incarnation(1);
    process.node.set_host(place.host);
    StartProcess(process);
  };
  add(kDriver, driver);
  for (size_t rank = 0; rank < workers.size(); ++rank) add(static_cast<int32_t>(rank) + 1, workers[rank]);
}

void JobState::StartProcess(Process& process) {
  process.running = true;
  process.leaving = false;
  process.peer.clear();
  process.node.clear_endpoint();
  process.node.clear_pid();
  control::Message message = NewMessage();
  control::StartProcess& start = *message.mutable_start_process();
  *start.mutable_node() = process.node;
  *start.mutable_command() = spec_.command();
  start.set_working_directory(spec_.working_directory());
  start.set_num_workers(spec_.num_workers());
  start.set_mesh(spec_.mesh());
  start.set_job_dir(spec_.job_dir());
  outbox_->Send(process.agent, std::move(message));
}

absl::Status JobState::Handle(const std::string& peer, const control::Message& message, absl::Time now) {
  using Body = control::Message::BodyCase;
  switch (message.body_case()) {
    case Body::kProcessStarted: return ProcessStarted(peer, message.process_started());
    case Body::kProcessExited: return ProcessExited(peer, message.process_exited());
    case Body::kAnswer: OnLogDirectoryAnswer(peer, message); return absl::OkStatus();
    case Body::kNodeHello: return NodeHello(peer, message);
    case Body::kLogLines: TellLauncher(message); return absl::OkStatus();
    case Body::kSetLogDirectory: return SetLogDirectory(peer, message);
    default: break;
  }
  if (message.has_cancel_job() || message.has_kill_job()) {
    if (peer != launcher_) return absl::PermissionDeniedError(absl::StrCat("only ", launcher_, " may end this job"));
    if (message.has_cancel_job()) {
      Cancel(FromControl(message.cancel_job().why()));
    } else {
      Kill();
    }
    return absl::OkStatus();
  }
  // What is left comes from nodes that said hello.
  const auto sender = std::find_if(processes_.begin(), processes_.end(),
                                   [&](const auto& each) { return each.second.running && each.second.peer == peer; });
  if (sender == processes_.end()) return absl::FailedPreconditionError("it is no living node of this job");
  absl::Status status;
  switch (message.body_case()) {
    case Body::kGoodbye: sender->second.leaving = true; return absl::OkStatus();
    case Body::kLookUpName: LookUp(peer, message, now); return absl::OkStatus();
    case Body::kRegisterName: status = Register(message.register_name()); break;
    case Body::kRemoveName: status = Remove(message.remove_name()); break;
    case Body::kSetMaxRestarts: status = SetMaxRestarts(message.set_max_restarts()); break;
    default: return absl::InvalidArgumentError("it is none that a node sends");
  }
  outbox_->Answer(peer, message, status);
  return absl::OkStatus();
}

// ---- nodes ----

absl::Status JobState::NodeHello(const std::string& peer, const control::Message& message) {
  const control::NodeHello& hello = message.node_hello();
  if (hello.protocol() != kControlProtocol) {
    return absl::FailedPreconditionError(absl::StrCat("node ", hello.node().id(), " speaks version ", hello.protocol(),
                                                      " of the control protocol, the coordinator ", kControlProtocol));
  }
  Process* process = Find(hello.node().id(), hello.node().incarnation());
  if (process == nullptr || !process->running) {
    return absl::FailedPreconditionError(absl::StrCat("node ", hello.node().id(), " incarnation ",
                                                      hello.node().incarnation(), " was not started by this job"));
  }
  if (!process->peer.empty() && process->node.pid() != hello.node().pid()) {
    return absl::FailedPreconditionError(absl::StrCat(Describe(process->node), " is there already; process ",
                                                      hello.node().pid(), " must not take its place"));
  }
  TROUPE_RETURN_IF_ERROR(CheckBuild(hello));
  process->peer = peer;
  process->node.set_endpoint(hello.node().endpoint());
  process->node.set_pid(hello.node().pid());
  outbox_->Answer(peer, message, absl::OkStatus());
  control::Message up = NewMessage();
  for (const auto& [id, other] : processes_) {
    if (id == process->node.id() || other.peer.empty()) continue;
    *up.mutable_node_up()->mutable_node() = other.node;
    outbox_->Send(peer, up);
  }
  *up.mutable_node_up()->mutable_node() = process->node;
  Broadcast(up, process->node.id());
  if (shutdown_.has_value()) {
    control::Message shutdown = NewMessage();
    *shutdown.mutable_shutdown()->mutable_why() = ToControl(*shutdown_);
    outbox_->Send(peer, std::move(shutdown));
  }
  return absl::OkStatus();
}

absl::Status JobState::CheckBuild(const control::NodeHello& hello) {
  if (!first_hello_.has_value()) {
    first_hello_ = hello;
    return absl::OkStatus();
  }
  const auto name = [this](const control::Node& node) { return Describe(node); };
  if (first_hello_->build_id() != hello.build_id()) {
    return absl::FailedPreconditionError(absl::StrCat(name(hello.node()), " runs build ", hello.build_id(), ", ",
                                                      name(first_hello_->node()), " runs ", first_hello_->build_id(),
                                                      ": all processes of a job must run the same program"));
  }
  if (first_hello_->signature_hash() != hello.signature_hash()) {
    return absl::FailedPreconditionError(absl::StrCat(
        name(hello.node()), " has actor methods ", absl::Hex(hello.signature_hash(), absl::kZeroPad16), ", ",
        name(first_hello_->node()), " has ", absl::Hex(first_hello_->signature_hash(), absl::kZeroPad16),
        ": all processes of a job must register the same actors"));
  }
  return absl::OkStatus();
}

absl::Status JobState::ProcessStarted(const std::string& peer, const control::ProcessStarted& started) {
  Process* process = Find(started.node(), started.incarnation());
  if (process == nullptr || process->agent != peer) {
    return absl::FailedPreconditionError(absl::StrCat("node ", started.node(), " is not this agent's"));
  }
  process->node.set_pid(started.pid());
  if (told_started_) return absl::OkStatus();
  for (const auto& [id, each] : processes_) {
    if (each.node.pid() == 0) return absl::OkStatus();
  }
  told_started_ = true;
  control::Message message = NewMessage();
  for (const auto& [id, each] : processes_) *message.mutable_job_started()->add_nodes() = each.node;
  TellLauncher(std::move(message));
  return absl::OkStatus();
}

absl::Status JobState::ProcessExited(const std::string& peer, const control::ProcessExited& exited) {
  Process* process = Find(exited.node(), exited.incarnation());
  if (process == nullptr || process->agent != peer || !process->running) {
    return absl::FailedPreconditionError(absl::StrCat("node ", exited.node(), " is not this agent's"));
  }
  process->node.set_pid(exited.pid());
  Died(*process, exited, absl::UnavailableError(absl::StrCat(Describe(process->node), " ", exited.what())));
  return absl::OkStatus();
}

void JobState::Died(Process& process, const control::ProcessExited& exited, const absl::Status& why) {
  process.running = false;
  process.peer.clear();
  if (process.node.id() == kDriver) {
    DriverDied(exited, why);
  } else {
    WorkerDied(process, exited, why);
  }
  TellEndWhenAllGone();
}

void JobState::DriverDied(const control::ProcessExited& exited, const absl::Status& why) {
  ending_ = true;
  const bool killed = exited.signal() != 0;
  const bool too_late = worker_lost_ && (exited.signal() == SIGTERM || exited.signal() == SIGKILL);
  const bool by_us = processes_[kDriver].stopping || too_late;
  // A driver that was ended because a worker died says nothing by its status; one that gave up itself does.
  if (!worker_lost_) {
    exit_code_ = killed ? kSignalBase + exited.signal() : exited.exit_code();
    if (exit_code_ != 0) why_ = why;
  } else if (!killed && exited.exit_code() != 0 && !by_us) {
    exit_code_ = exited.exit_code();
  }
  control::Message message = NewMessage();
  *message.mutable_node_down()->mutable_node() = processes_[kDriver].node;
  *message.mutable_node_down()->mutable_why() = ToControl(why);
  if (killed || exited.never_ran()) {
    Broadcast(message, kDriver);
    if (too_late) {
      *message.mutable_node_down()->mutable_why() = ToControl(absl::DeadlineExceededError(
          absl::StrCat(Describe(processes_[kDriver].node), " did not end within ",
                       absl::FormatDuration(times_.driver_farewell), " of that, so it ", exited.what())));
    }
    if (!processes_[kDriver].stopping) TellLauncher(message);
    constexpr absl::Duration kFarewell = absl::Milliseconds(200);
    return EndWorkers(kFarewell);
  }
  shutdown_ = absl::OkStatus();
  message = NewMessage();
  *message.mutable_shutdown()->mutable_why() = ToControl(*shutdown_);
  Broadcast(message, kDriver);
  EndWorkers(exit_code_ == 0 ? times_.worker_farewell : times_.driver_farewell);
}

void JobState::WorkerDied(Process& process, const control::ProcessExited& exited, const absl::Status& why) {
  const bool clean = exited.signal() == 0 && exited.exit_code() == 0;
  const bool expected = ending_ || process.stopping || process.leaving;
  const bool restarts = !expected && !cancelled_ && !exited.never_ran() && process.restarts < process.max_restarts;
  const bool fatal = !clean && !expected && !restarts;

  control::Message down = NewMessage();
  *down.mutable_node_down()->mutable_node() = process.node;
  *down.mutable_node_down()->mutable_why() = ToControl(why);
  down.mutable_node_down()->set_restarts(restarts);
  Broadcast(down, process.node.id());
  if (!expected) {
    down.mutable_node_down()->set_ends_job(fatal && !worker_lost_);
    *down.mutable_node_down()->mutable_last_lines() = exited.last_lines();
    down.mutable_node_down()->set_log_file(exited.log_file());
    TellLauncher(std::move(down));
  }

  if (restarts) {
    ++process.restarts;
    process.node.set_incarnation(process.node.incarnation() + 1);
    return StartProcess(process);
  }
  for (auto it = names_.begin(); it != names_.end();) {
    it = it->second.node() == process.node.id() ? names_.erase(it) : std::next(it);
  }
  if (!fatal || worker_lost_) return;
  worker_lost_ = true;
  why_ = why;
  exit_code_ = 1;
  StopProcess(processes_[kDriver], times_.driver_farewell, times_.driver_farewell + times_.terminate_grace);
}

void JobState::StopProcess(Process& process, absl::Duration terminate_after, absl::Duration kill_after) {
  if (!process.running) return;
  process.stopping = terminate_after <= absl::ZeroDuration() || process.stopping;
  control::Message message = NewMessage();
  message.mutable_stop_process()->set_node(process.node.id());
  message.mutable_stop_process()->set_terminate_after_ms(Milliseconds(terminate_after));
  message.mutable_stop_process()->set_kill_after_ms(Milliseconds(kill_after));
  outbox_->Send(process.agent, std::move(message));
}

void JobState::EndWorkers(absl::Duration farewell) {
  for (auto& [id, process] : processes_) {
    if (id == kDriver) continue;
    // One that is not even connected has nothing to put away.
    const absl::Duration wait = process.peer.empty() ? absl::ZeroDuration() : farewell;
    StopProcess(process, wait, wait + times_.terminate_grace);
  }
}

void JobState::TellEndWhenAllGone() {
  if (!ending_ || told_end_) return;
  for (const auto& [id, process] : processes_) {
    if (process.running) return;
  }
  told_end_ = true;
  control::Message message = NewMessage();
  message.mutable_job_ended()->set_exit_code(exit_code_);
  *message.mutable_job_ended()->mutable_why() = ToControl(why_);
  TellLauncher(std::move(message));
}

void JobState::OnAgentLost(const std::string& agent, const absl::Status& why) {
  for (auto& [id, process] : processes_) {
    if (process.agent != agent || !process.running) continue;
    control::ProcessExited exited;
    exited.set_node(id);
    exited.set_exit_code(1);
    exited.set_never_ran(true);  // nothing may be started there
    Died(process, exited, absl::UnavailableError(absl::StrCat(Describe(process.node), " is lost: ", why.message())));
  }
  for (auto it = log_requests_.begin(); it != log_requests_.end();) {
    LogDirectoryRequest& request = it->second;
    request.waiting.erase(agent);
    if (!request.waiting.empty()) {
      ++it;
      continue;
    }
    outbox_->Answer(request.peer, request.question, request.status);
    it = log_requests_.erase(it);
  }
}

void JobState::Cancel(const absl::Status& why) {
  if (cancelled_ || ending_) return;
  cancelled_ = true;
  shutdown_ = why;
  control::Message message = NewMessage();
  *message.mutable_shutdown()->mutable_why() = ToControl(why);
  const Process& driver = processes_[kDriver];
  Broadcast(message, -1);
  if (!driver.peer.empty() && !driver.leaving) return;
  // Nobody in the driver would hear the message; what it does on SIGINT is its own choice.
  message = NewMessage();
  message.mutable_signal_process()->set_node(kDriver);
  message.mutable_signal_process()->set_signal(SIGINT);
  outbox_->Send(driver.agent, std::move(message));
}

void JobState::Kill() {
  for (auto& [id, process] : processes_) StopProcess(process, absl::ZeroDuration(), absl::ZeroDuration());
}

// ---- names ----

absl::Status JobState::Register(const control::RegisterName& name) {
  if (name.name().empty()) return absl::InvalidArgumentError("an actor's name is empty");
  if (names_.size() >= kMaxNames) return absl::ResourceExhaustedError(absl::StrCat(kMaxNames, " names are taken"));
  const auto [known, fresh] = names_.emplace(name.name(), name);
  if (!fresh) {
    const bool same = known->second.node() == name.node() && known->second.actor() == name.actor();
    const auto owner = processes_.find(known->second.node());
    if (!same && owner != processes_.end() && owner->second.running) {
      return absl::AlreadyExistsError(
          absl::StrCat("an actor is called ", name.name(), " already, on node ", known->second.node()));
    }
    known->second = name;
  }
  AnswerLookups(name.name());
  return absl::OkStatus();
}

absl::Status JobState::Remove(const control::RemoveName& name) {
  if (names_.erase(name.name()) > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no actor is called ", name.name()));
}

void JobState::LookUp(const std::string& peer, const control::Message& question, absl::Time now) {
  if (lookups_.size() >= kMaxLookups) {
    return outbox_->Answer(peer, question, absl::ResourceExhaustedError(absl::StrCat(kMaxLookups, " look-ups wait")));
  }
  lookups_.push_back({peer, question, now + absl::Microseconds(question.look_up_name().timeout_us())});
  AnswerLookups(question.look_up_name().name());
  Tick(now);
}

void JobState::AnswerLookups(const std::string& name) {
  const auto known = names_.find(name);
  if (known == names_.end()) return;
  control::Answer answer;
  answer.set_node(known->second.node());
  answer.set_actor(known->second.actor());
  answer.set_class_name(known->second.class_name());
  std::erase_if(lookups_, [&](const Lookup& lookup) {
    if (lookup.question.look_up_name().name() != name) return false;
    outbox_->Answer(lookup.peer, lookup.question, absl::OkStatus(), answer);
    return true;
  });
}

void JobState::Tick(absl::Time now) {
  std::erase_if(lookups_, [&](const Lookup& lookup) {
    if (lookup.deadline > now) return false;
    const auto& name = lookup.question.look_up_name();
    outbox_->Answer(lookup.peer, lookup.question,
                    absl::NotFoundError(absl::StrCat("no actor was called ", name.name(), " within ",
                                                     absl::FormatDuration(absl::Microseconds(name.timeout_us())))));
    return true;
  });
}

absl::Time JobState::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Lookup& lookup : lookups_) next = std::min(next, lookup.deadline);
  return next;
}

// ---- what may be asked beside ----

absl::Status JobState::SetMaxRestarts(const control::SetMaxRestarts& budget) {
  const auto found = processes_.find(budget.node());
  if (found == processes_.end() || budget.node() == kDriver) {
    return absl::InvalidArgumentError(absl::StrCat("node ", budget.node(), " is no worker of this job"));
  }
  if (budget.max_restarts() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_restarts is ", budget.max_restarts(), ", at least 0 makes sense"));
  }
  found->second.max_restarts = budget.max_restarts();
  return absl::OkStatus();
}

absl::Status JobState::SetLogDirectory(const std::string& peer, const control::Message& message) {
  const std::string& directory = message.set_log_directory().directory();
  if (directory.empty() || directory[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat("log directory \"", directory, "\" is no absolute path"));
  }
  const uint64_t number = next_log_request_++;
  log_requests_[number] = {peer, message, Agents(), absl::OkStatus()};
  control::Message forward = NewMessage();
  forward.set_request(number);
  *forward.mutable_set_log_directory() = message.set_log_directory();
  for (const std::string& agent : Agents()) outbox_->Send(agent, forward);
  return absl::OkStatus();
}

void JobState::OnLogDirectoryAnswer(const std::string& agent, const control::Message& message) {
  const auto found = log_requests_.find(message.request());
  if (found == log_requests_.end() || found->second.waiting.erase(agent) == 0) return;
  LogDirectoryRequest& request = found->second;
  if (request.status.ok()) request.status = FromControl(message.answer().status());
  if (!request.waiting.empty()) return;
  outbox_->Answer(request.peer, request.question, request.status);
  log_requests_.erase(found);
}

// ---- small things ----

control::Message JobState::NewMessage() const {
  control::Message message;
  message.set_job_epoch(epoch_);
  return message;
}

void JobState::Broadcast(const control::Message& message, int32_t except) {
  for (const auto& [id, process] : processes_) {
    if (id != except && !process.peer.empty() && !process.leaving) outbox_->Send(process.peer, message);
  }
}

JobState::Process* JobState::Find(int32_t node, uint32_t incarnation) {
  const auto found = processes_.find(node);
  if (found == processes_.end() || found->second.node.incarnation() != incarnation) return nullptr;
  return &found->second;
}

std::set<std::string> JobState::Agents() const {
  std::set<std::string> agents;
  for (const auto& [id, process] : processes_) agents.insert(process.agent);
  return agents;
}

std::string JobState::Describe(const control::Node& node) const {
  const std::string who = node.id() == kDriver ? "the driver" : absl::StrCat("rank ", node.rank());
  const std::string pid = node.pid() == 0 ? "" : absl::StrCat(", pid ", node.pid());
  return absl::StrCat(who, " (host ", node.host(), pid, ")");
}

}  // namespace troupe::runtime::internal
