/// A result that may not be there yet; it can be waited for, passed to another actor, or dropped.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/actor/object_state.h"
#include "runtime/msg/codec.h"

namespace troupe::runtime {

/// A future of one call. Copies show the same result; Get may be called often, and by several threads.
///
/// As an argument it stands for a T that the callee's node fetches from where it lies before the method runs; a method that
/// takes an ObjectRef<T> itself gets the reference.
///
/// Threads  thread-safe.
template <typename T>
class ObjectRef {
 public:
  using Value = T;

  ObjectRef() = default;
  explicit ObjectRef(std::shared_ptr<ObjectState> state) : state_(std::move(state)) {}

  /// The value, or the error of the call.
  ///
  /// Blocking until the call ends, its own deadline, or `timeout`: after the last it may be asked again.
  auto Get(absl::Duration timeout) const {
    if constexpr (std::is_void_v<T>) {
      return GetValue<std::monostate>(timeout).status();
    } else {
      return GetValue<T>(timeout);
    }
  }

  /// Ended, well or not.
  bool Ready() const { return state_ == nullptr || state_->kind() != ObjectState::Kind::kPending; }

  /// A call that has not started is dropped and ends with CANCELLED; one that runs sees ActorContext::cancelled().
  void Cancel() const {
    if (state_ != nullptr) state_->Cancel();
  }

  const std::shared_ptr<ObjectState>& state() const { return state_; }

 private:
  template <typename U>
  absl::StatusOr<U> GetValue(absl::Duration timeout) const {
    if (state_ == nullptr) return absl::FailedPreconditionError("an ObjectRef that no call made");
    const absl::StatusOr<const Payload*> payload = state_->Value(absl::Now() + timeout);
    if (!payload.ok()) return payload.status();
    return DecodeValue<U>(**payload, state_->node().get(), state_->method());
  }

  std::shared_ptr<ObjectState> state_;
};

/// Waits until `count` of `states` have ended; which ones, in their order. Part of Wait below.
absl::StatusOr<std::vector<size_t>> WaitStates(const std::vector<std::shared_ptr<ObjectState>>& states, size_t count,
                                               absl::Duration timeout);
/// Waits until all have ended or one has failed, and gives that one's error.
absl::Status WaitAllStates(const std::vector<std::shared_ptr<ObjectState>>& states, absl::Duration timeout);

/// The indices of the calls that have ended, as soon as there are `count` of them or the time is over (then fewer).
///
/// Blocking until then.
template <typename T>
absl::StatusOr<std::vector<size_t>> Wait(const std::vector<ObjectRef<T>>& refs, size_t count, absl::Duration timeout) {
  std::vector<std::shared_ptr<ObjectState>> states;
  for (const auto& ref : refs) states.push_back(ref.state());
  return WaitStates(states, count, timeout);
}

/// All values in their order, or the error of the first call that fails, as soon as it fails.
///
/// Blocking until then, or `timeout`.
template <typename T>
auto WhenAll(const std::vector<ObjectRef<T>>& refs, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<std::shared_ptr<ObjectState>> states;
  for (const auto& ref : refs) states.push_back(ref.state());
  const absl::Status status = WaitAllStates(states, timeout);
  if constexpr (std::is_void_v<T>) {
    return status;
  } else {
    const auto collect = [&]() -> absl::StatusOr<std::vector<T>> {
      if (!status.ok()) return status;
      for (const auto& state : states) state->StartFetch();  // all on their way before the first is waited for
      std::vector<T> values;
      for (const auto& ref : refs) {
        absl::StatusOr<T> value = ref.Get(deadline - absl::Now());
        if (!value.ok()) return value.status();
        values.push_back(*std::move(value));
      }
      return values;
    };
    return collect();
  }
}

template <typename T>
struct IsObjectRef : std::false_type {};
template <typename T>
struct IsObjectRef<ObjectRef<T>> : std::true_type {};

}  // namespace troupe::runtime

namespace msgpack {
MSGPACK_API_VERSION_NAMESPACE(MSGPACK_DEFAULT_API_NS) {
  namespace adaptor {

  template <typename T>
  struct pack<troupe::runtime::ObjectRef<T>> {
    template <typename Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& out, const troupe::runtime::ObjectRef<T>& ref) const {
      if (ref.state() == nullptr) return out.pack_nil();
      auto& refs = troupe::runtime::codec_internal::encode_context->refs;
      troupe::runtime::codec_internal::PackIndex(out, troupe::runtime::codec_internal::kRefExt, refs.size());
      refs.push_back(ref.state());
      return out;
    }
  };

  template <typename T>
  struct convert<troupe::runtime::ObjectRef<T>> {
    const msgpack::object& operator()(const msgpack::object& object, troupe::runtime::ObjectRef<T>& ref) const {
      namespace internal = troupe::runtime::codec_internal;
      if (object.type == msgpack::type::NIL) {
        ref = {};
        return object;
      }
      if (!internal::IsExt(object, internal::kRefExt)) throw msgpack::type_error();
      const auto refs = internal::decode_context->refs;
      const uint32_t index = internal::ExtIndex(object);
      if (index >= refs.size()) {
        throw internal::BrokenValue(absl::StrCat("reference ", index, " is named, ", refs.size(), " came"));
      }
      ref = troupe::runtime::ObjectRef<T>(refs[index]);
      return object;
    }
  };

  }  // namespace adaptor
}
}  // namespace msgpack
