/// One actor on every rank of a mesh, called together.
///
///   auto trainers = ActorGroup<Trainer>::Spawn(job, mesh, {.name = "trainer"}, options);
///   auto loss = trainers->Call<&Trainer::ForwardBackward>(dispatch::SliceDp(), collect::Mean(), batch).Get(timeout);
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/actor/handle.h"
#include "runtime/base/status.h"
#include "runtime/group/collect_rule.h"
#include "runtime/group/dispatch_rule.h"
#include "runtime/group/group_future.h"
#include "runtime/job/job.h"
#include "runtime/mesh/device_mesh.h"
#include "runtime/node/channel.h"

namespace troupe::runtime {

struct GroupOptions {
  std::string name = {};                       ///< rank r is called `name[r]`
  int first_worker = 0;                        ///< rank r lives on worker first_worker + r
  int max_restarts = 0;                        ///< of each member
  absl::Duration timeout = absl::Minutes(10);  ///< for all constructors together
};

namespace group_internal {

/// Who the members will be and how they reach each other.
///
/// Errors  INVALID_ARGUMENT when the mesh has more ranks than there are workers.
absl::StatusOr<std::vector<CreateRequest>> PlanGroup(Job& job, const DeviceMesh& mesh, const GroupOptions& options,
                                                     const std::string& class_name);

}  // namespace group_internal

/// Copies share the members' sessions. A member finds its rank, the mesh and the way to the others in ActorContext::group().
///
/// Threads   thread-safe.
/// Lifetime  the members live until Destroy or the end of the job.
template <class A>
class ActorGroup {
 public:
  /// Makes all members at once, so that their constructors may already talk to each other.
  ///
  /// Blocking until all constructors have run, or one has failed: then the others are destroyed.
  template <typename... Args>
  static absl::StatusOr<ActorGroup> Spawn(Job& job, const DeviceMesh& mesh, const GroupOptions& options,
                                          const Args&... arguments) {
    const std::shared_ptr<Node>& node = job.node();
    TROUPE_ASSIGN_OR_RETURN(std::vector<CreateRequest> requests,
                            group_internal::PlanGroup(job, mesh, options, TypeName<A>()));
    ActorGroup group;
    group.node_ = node;
    group.mesh_ = mesh;
    group.channel_ = requests.front().channel;
    group.epoch_ = std::make_shared<std::atomic<uint32_t>>(0);
    std::vector<std::shared_ptr<ObjectState>> made;
    for (CreateRequest& request : requests) {
      EncodeContext context;
      request.arguments = handle_internal::EncodeConstructor<A>(&context, &request, arguments...);
      auto target = node->MakeTarget(request.identity);
      group.members_.emplace_back(node, target);
      made.push_back(node->Create(target, request, std::move(context.frames), options.max_restarts, options.timeout));
    }
    absl::Status status = WaitAllStates(made, options.timeout);
    for (const CreateRequest& request : requests) {
      const SpawnOptions member{options.name.empty() ? "" : request.identity.name, request.identity.rank,
                                options.max_restarts, options.timeout};
      if (status.ok()) status = handle_internal::RegisterActor(*node, request.identity, member);
    }
    if (!status.ok()) {
      group.Revoke(status);  // constructors that wait for the one that failed
      (void)group.Destroy(options.timeout);
      return status;
    }
    return group;
  }

  /// Calls M on every rank; nothing waits. Arguments that are std::vectors are dealt by rows as `rule` says.
  ///
  /// Never  blocks.
  template <auto M, class Rule, typename... Args>
  auto Call(const DispatchRule& rule, const Rule& collect, const Args&... arguments) const {
    return CallWith<M>(CallOptions{}, rule, collect, arguments...);
  }

  template <auto M, class Rule, typename... Args>
  auto CallWith(const CallOptions& options, const DispatchRule& rule, const Rule& collect,
                const Args&... arguments) const {
    using R = MethodResult<M>;
    const absl::StatusOr<DispatchRecord> record = Deal(rule, arguments...);
    std::vector<ObjectRef<R>> refs;
    std::vector<std::shared_ptr<ObjectState>> states;
    if (record.ok()) {
      for (size_t rank = 0; rank < members_.size(); ++rank) {
        const std::vector<size_t>& rows = record->rows_of[rank];
        refs.push_back(rule.kind == Dispatch::kAll
                           ? members_[rank].template Call<M>(options, Whole(arguments)...)
                           : members_[rank].template Call<M>(options, group_internal::RowsFor(arguments, rows)...));
        states.push_back(refs.back().state());
      }
    }
    if constexpr (std::is_void_v<R>) {
      if (!record.ok()) return GroupFuture<void>(record.status());
      return GroupFuture<void>(states, [refs](absl::Duration timeout) { return WhenAll(refs, timeout); });
    } else {
      using Out = typename Rule::template Result<R>;
      if (!record.ok()) return GroupFuture<Out>(record.status());
      return GroupFuture<Out>(states, [refs, collect, record = *record](absl::Duration timeout) -> absl::StatusOr<Out> {
        absl::StatusOr<std::vector<R>> results = WhenAll(refs, timeout);
        if (!results.ok()) return results.status();
        return collect(*std::move(results), record);
      });
    }
  }

  const DeviceMesh& mesh() const { return mesh_; }
  int size() const { return static_cast<int>(members_.size()); }
  const ActorHandle<A>& member(int rank) const { return members_[static_cast<size_t>(rank)]; }

  /// Breaks the collectives that run: every member's waits end with `why`, and so do later ones until Reset.
  void Revoke(const absl::Status& why) const { node_->RevokeChannel(channel_, epoch_->load(), why); }

  /// Ends the collectives that run, and lets members that then Rejoin make new ones; after a member was made again.
  void Reset() const { node_->ResetChannel(channel_, epoch_->fetch_add(1) + 1); }

  /// Ends all members.
  ///
  /// Blocking until their methods have returned, or `timeout`.
  absl::Status Destroy(absl::Duration timeout) const {
    std::vector<ObjectRef<void>> ends;
    for (const ActorHandle<A>& member : members_) ends.push_back(member.DestroyAsync(timeout));
    return WhenAll(ends, timeout);
  }

 private:
  template <typename T>
  static const T& Whole(const T& argument) {
    return argument;
  }
  template <typename T>
  static const T& Whole(const WholeArgument<T>& argument) {
    return argument.value;
  }

  template <typename... Args>
  absl::StatusOr<DispatchRecord> Deal(const DispatchRule& rule, const Args&... arguments) const {
    DispatchRecord record;
    record.mesh = mesh_;
    record.kind = rule.kind;
    bool found = false;
    absl::Status status;
    if (rule.kind != Dispatch::kAll) (group_internal::CountRows(arguments, &found, &record.rows, &status), ...);
    if (!status.ok()) return Annotate(status, DispatchName(rule.kind));
    TROUPE_ASSIGN_OR_RETURN(record.rows_of, DispatchRows(mesh_, rule.kind, record.rows, rule.function));
    return record;
  }

  std::shared_ptr<Node> node_;
  DeviceMesh mesh_;
  ChannelDescription channel_;
  std::shared_ptr<std::atomic<uint32_t>> epoch_;
  std::vector<ActorHandle<A>> members_;
};

}  // namespace troupe::runtime
