/// Calls an actor wherever it lives.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/actor/actor.h"
#include "runtime/actor/actor_target.h"
#include "runtime/actor/object_ref.h"
#include "runtime/base/check.h"
#include "runtime/node/node.h"

namespace troupe::runtime {

struct CallOptions {
  absl::Duration timeout =
      absl::ZeroDuration();  ///< after which the call ends with DEADLINE_EXCEEDED; zero: the job's default
};

/// A typed name of an actor; copies share one session, so their calls keep their order. May be passed as an argument.
///
///   ObjectRef<int> sum = counter.Call<&Counter::Add>(2);
///
/// Invariants, each with a test of the same name:
///   I-1  Calls made through one handle run in the order they were made.
///   I-2  A call runs at most once. A lost call is an error, never a repeat.
/// Threads   thread-safe.
/// Lifetime  the actor lives until Destroy or the end of the job, whoever holds handles.
template <class A>
class ActorHandle {
 public:
  ActorHandle() = default;
  ActorHandle(std::shared_ptr<Node> node, std::shared_ptr<ActorTarget> target)
      : node_(std::move(node)), target_(std::move(target)) {}

  /// Runs M inside the actor and returns at once; every error arrives through the ObjectRef. An ObjectRef<T> may stand for a T.
  ///
  /// Never  blocks.
  template <auto M, typename... Args>
  requires(sizeof...(Args) ==
           MethodTraits<decltype(M)>::kArity) ObjectRef<MethodResult<M>> Call(const Args&... arguments)
  const { return CallWith<M>(CallOptions{}, arguments...); }
  template <auto M, typename... Args>
  requires(sizeof...(Args) ==
           MethodTraits<decltype(M)>::kArity) ObjectRef<MethodResult<M>> Call(const CallOptions& options,
                                                                              const Args&... arguments)
  const { return CallWith<M>(options, arguments...); }

  /// Ends the actor; calls that have not started end with CANCELLED.
  ///
  /// Blocking until the method that runs has returned, or `timeout`.
  absl::Status Destroy(absl::Duration timeout) const { return DestroyAsync(timeout).Get(timeout); }
  ObjectRef<void> DestroyAsync(absl::Duration timeout) const {
    return ObjectRef<void>(node_->Destroy(target_, timeout));
  }

  bool valid() const { return target_ != nullptr; }
  const ActorIdentity& identity() const { return target_->identity; }
  const std::string& name() const { return target_->identity.name; }
  const std::shared_ptr<Node>& node() const { return node_; }

 private:
  template <auto M, typename... Args>
  ObjectRef<MethodResult<M>> CallWith(const CallOptions& options, const Args&... arguments) const {
    using Method = MethodOf<A, M>;
    TROUPE_CHECK(valid()) << "a call through a handle of no actor";
    EncodeContext context;
    Payload payload;
    payload.body =
        EncodeArguments(std::type_identity<typename MethodTraits<decltype(M)>::Arguments>(), &context, arguments...);
    payload.frames = std::move(context.frames);
    static const MethodRef method{static_cast<uint32_t>(Method::kId), Method::name(), Method::kIdempotent};
    return ObjectRef<MethodResult<M>>(
        node_->Call(target_, method, std::move(payload), std::move(context.refs), options.timeout));
  }

  std::shared_ptr<Node> node_;
  std::shared_ptr<ActorTarget> target_;
};

struct SpawnOptions {
  std::string name = {};                       ///< under which others look it up; empty: only handles reach it
  int rank = -1;                               ///< worker rank; -1: the driver
  int max_restarts = 0;                        ///< times that it is made again when its node dies and comes back
  absl::Duration timeout = absl::Minutes(10);  ///< for the constructor
};

namespace handle_internal {

/// Fills in who the actor will be; `node` lives as long as the job.
ActorIdentity NewIdentity(Node& node, std::string class_name, const SpawnOptions& options);
absl::Status RegisterActor(Node& node, const ActorIdentity& identity, const SpawnOptions& options);

template <class A, typename... Args>
std::string EncodeConstructor(EncodeContext* context, CreateRequest* request, const Args&... arguments) {
  static_assert((!IsObjectRef<Args>::value && ...), "a constructor takes values: the actor may have to be made again");
  request->constructor = actor_internal::ConstructorOf<A, PackedType<Args>...>::key;
  return EncodeArguments(std::type_identity<std::tuple<PackedType<Args>...>>(), context, arguments...);
}

}  // namespace handle_internal

/// Makes an actor of class A on a worker, and registers its name.
///
/// Blocking until its constructor has run, or the timeout.
/// Errors   those of the constructor; ALREADY_EXISTS when the name is taken; UNAVAILABLE when the worker is dead.
template <class A, typename... Args>
absl::StatusOr<ActorHandle<A>> SpawnOn(const std::shared_ptr<Node>& node, const SpawnOptions& options,
                                       const Args&... arguments) {
  CreateRequest request;
  request.identity = handle_internal::NewIdentity(*node, TypeName<A>(), options);
  EncodeContext context;
  request.arguments = handle_internal::EncodeConstructor<A>(&context, &request, arguments...);
  auto target = node->MakeTarget(request.identity);
  ActorHandle<A> handle(node, target);
  const ObjectRef<void> made(
      node->Create(target, request, std::move(context.frames), options.max_restarts, options.timeout));
  TROUPE_RETURN_IF_ERROR(made.Get(options.timeout));
  const absl::Status registered = handle_internal::RegisterActor(*node, request.identity, options);
  if (!registered.ok()) {
    (void)handle.Destroy(options.timeout);
    return registered;
  }
  return handle;
}

/// The actor that was spawned with this name; it may not be there yet.
///
/// Blocking until it is, or `timeout`.
/// Errors   NOT_FOUND when it never came; FAILED_PRECONDITION when it is of another class.
template <class A>
absl::StatusOr<ActorHandle<A>> LookUpActor(const std::shared_ptr<Node>& node, const std::string& name,
                                           absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const ActorIdentity identity, node->LookUp(name, timeout));
  if (identity.class_name != TypeName<A>()) {
    return absl::FailedPreconditionError(absl::StrCat(name, " is a ", identity.class_name, ", not a ", TypeName<A>()));
  }
  return ActorHandle<A>(node, node->MakeTarget(identity));
}

}  // namespace troupe::runtime

namespace msgpack {
MSGPACK_API_VERSION_NAMESPACE(MSGPACK_DEFAULT_API_NS) {
  namespace adaptor {

  template <class A>
  struct pack<troupe::runtime::ActorHandle<A>> {
    template <typename Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& out,
                                        const troupe::runtime::ActorHandle<A>& handle) const {
      if (!handle.valid()) return out.pack_nil();
      return out.pack(handle.identity());
    }
  };

  template <class A>
  struct convert<troupe::runtime::ActorHandle<A>> {
    const msgpack::object& operator()(const msgpack::object& object, troupe::runtime::ActorHandle<A>& handle) const {
      handle = {};
      if (object.type == msgpack::type::NIL) return object;
      troupe::runtime::Node* node = troupe::runtime::codec_internal::decode_context->node;
      if (node == nullptr) throw troupe::runtime::codec_internal::BrokenValue("a handle outside of a node");
      auto identity = object.as<troupe::runtime::ActorIdentity>();
      handle = troupe::runtime::ActorHandle<A>(node->shared_from_this(), node->MakeTarget(std::move(identity)));
      return object;
    }
  };

  }  // namespace adaptor
}
}  // namespace msgpack
