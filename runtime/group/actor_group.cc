#include "runtime/group/actor_group.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::runtime::group_internal {

absl::StatusOr<std::vector<CreateRequest>> PlanGroup(Job& job, const DeviceMesh& mesh, const GroupOptions& options,
                                                     const std::string& class_name) {
  const int available = job.num_workers() - options.first_worker;
  if (options.first_worker < 0 || mesh.size() > available) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": the mesh ", mesh.ToString(), " has ", mesh.size(),
                                                   " ranks, from worker ", options.first_worker, " on there are ",
                                                   available, " workers"));
  }
  Node& node = *job.node();
  ChannelDescription channel;
  channel.number = node.NewNumber();
  std::vector<CreateRequest> requests;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    SpawnOptions member;
    member.rank = options.first_worker + rank;
    member.max_restarts = options.max_restarts;
    CreateRequest request;
    request.identity = handle_internal::NewIdentity(node, class_name, member);
    const std::string& base = options.name.empty() ? request.identity.name : options.name;
    channel.name = base;
    request.identity.name = absl::StrCat(base, "[", rank, "]");
    request.identity.rank = rank;
    channel.members.push_back({rank, request.identity.node, request.identity.host});
    request.in_group = true;
    request.mesh = mesh.ToString();
    request.group_rank = rank;
    requests.push_back(std::move(request));
  }
  for (CreateRequest& request : requests) request.channel = channel;
  return requests;
}

}  // namespace troupe::runtime::group_internal
