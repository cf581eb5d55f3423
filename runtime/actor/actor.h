/// Makes a plain class an actor: TROUPE_ACTOR lists the methods that others may call.
///
///   class Counter { public: explicit Counter(int start); int Add(int n); };
///   TROUPE_ACTOR(Counter, &Counter::Add);
///
/// The class needs no base. It is made by the first of these that there is, with the arguments of Spawn:
///   static absl::StatusOr<std::unique_ptr<A>> Create(ActorContext&, arguments...), or without the context
///   A(ActorContext&, arguments...), or without the context
/// A method returns T, absl::StatusOr<T>, absl::Status or void. `absl::Status Restore()`, if there is one, runs after the
/// constructor when the actor lived before on a node that died.
#pragma once

#include <algorithm>
#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/actor/context.h"
#include "runtime/actor/method.h"
#include "runtime/actor/registry.h"
#include "runtime/actor/type_name.h"
#include "runtime/base/status.h"

namespace troupe::runtime {

/// The methods of a class as a type; the names are the text of the macro's arguments.
template <auto... Ms>
struct MethodList {
  const char* names;
};

namespace actor_internal {

template <auto A, auto B>
constexpr bool SameMethod() {
  if constexpr (std::is_same_v<decltype(A), decltype(B)>) return A == B;
  return false;
}

template <auto M, auto... Ms>
constexpr size_t IndexIn(MethodList<Ms...>*) {
  size_t index = 0;
  bool found = false;
  ((found = found || SameMethod<M, Ms>(), index += found ? 0 : 1), ...);
  return index;
}

template <auto... Ms>
constexpr size_t CountOf(MethodList<Ms...>*) {
  return sizeof...(Ms);
}

template <class A>
using MethodsOf = decltype(TroupeActorMethods(static_cast<A*>(nullptr)));

template <class A, auto M>
constexpr bool IsIdempotent() {
  if constexpr (requires { TroupeIdempotentMethods(static_cast<A*>(nullptr)); }) {
    using List = decltype(TroupeIdempotentMethods(static_cast<A*>(nullptr)));
    return IndexIn<M>(static_cast<List*>(nullptr)) < CountOf(static_cast<List*>(nullptr));
  }
  return false;
}

/// `Add` of the index-th in `&Counter::Sub, &Counter::Add`.
inline std::string NameOf(std::string_view names, size_t index) {
  for (size_t i = 0; i < index; ++i) names.remove_prefix(std::min(names.size(), names.find(',') + 1));
  names = names.substr(0, names.find(','));
  const size_t colons = names.rfind("::");
  if (colons != std::string_view::npos) names.remove_prefix(colons + 2);
  while (!names.empty() && names.back() == ' ') names.remove_suffix(1);
  return std::string(names);
}

template <class A>
absl::Status CallRestore(void* object) {
  return static_cast<A*>(object)->Restore();
}

template <class A, auto... Ms>
bool Register(MethodList<Ms...> list) {
  ClassEntry entry;
  entry.name = TypeName<A>();
  size_t index = 0;
  (entry.methods.push_back(
       {NameOf(list.names, index++), TypeName<decltype(Ms)>(), IsIdempotent<A, Ms>(), &InvokeMethod<A, Ms>}),
   ...);
  if constexpr (requires(A & object) {
                  { object.Restore() } -> std::same_as<absl::Status>;
                }) {
    entry.restore = &CallRestore<A>;
  }
  ClassRegistry::Global().AddClass(std::move(entry));
  return true;
}

template <class A, class... Args>
absl::StatusOr<std::shared_ptr<void>> Make(ActorContext& actor, const std::string& body, const DecodeContext& context) {
  TROUPE_ASSIGN_OR_RETURN(auto arguments, (DecodeArguments<std::tuple<Args...>>(body, context)));
  const auto make = [&](auto&... argument) -> absl::StatusOr<std::shared_ptr<void>> {
    if constexpr (requires { A::Create(actor, std::move(argument)...).value(); }) {
      TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<A> made, A::Create(actor, std::move(argument)...));
      return std::shared_ptr<void>(std::shared_ptr<A>(std::move(made)));
    } else if constexpr (requires { A::Create(std::move(argument)...).value(); }) {
      TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<A> made, A::Create(std::move(argument)...));
      return std::shared_ptr<void>(std::shared_ptr<A>(std::move(made)));
    } else if constexpr (std::is_constructible_v<A, ActorContext&, Args...>) {
      return std::shared_ptr<void>(std::make_shared<A>(actor, std::move(argument)...));
    } else {
      static_assert(std::is_constructible_v<A, Args...>, "the actor has no constructor for these arguments");
      return std::shared_ptr<void>(std::make_shared<A>(std::move(argument)...));
    }
  };
  return std::apply(make, arguments);
}

/// Registered before main because Spawn names `key`: every worker knows every way in which the program makes actors.
template <class A, class... Args>
struct ConstructorOf {
  static uint64_t Add() {
    const std::string signature = absl::StrCat(TypeName<A>(), "(", TypeName<std::tuple<Args...>>(), ")");
    return ClassRegistry::Global().AddConstructor(TypeName<A>(), {signature, &Make<A, Args...>});
  }
  static inline const uint64_t key = Add();
};

}  // namespace actor_internal

/// What handles need to call M of A.
template <class A, auto M>
struct MethodOf {
  using List = actor_internal::MethodsOf<A>;
  static constexpr size_t kId = actor_internal::IndexIn<M>(static_cast<List*>(nullptr));
  static_assert(kId < actor_internal::CountOf(static_cast<List*>(nullptr)), "the method is not listed in TROUPE_ACTOR");
  static constexpr bool kIdempotent = actor_internal::IsIdempotent<A, M>();
  static const char* name() {
    static const std::string text = actor_internal::NameOf(TroupeActorMethods(static_cast<A*>(nullptr)).names, kId);
    return text.c_str();
  }
};

}  // namespace troupe::runtime

/// Stands in the namespace of `Class`, after it.
#define TROUPE_ACTOR(Class, ...)                                                             \
  [[maybe_unused]] inline auto TroupeActorMethods(Class*) {                                  \
    return ::troupe::runtime::MethodList<__VA_ARGS__>{#__VA_ARGS__};                         \
  }                                                                                          \
  [[maybe_unused]] static const bool TROUPE_CONCAT_(troupe_actor_registered_, __COUNTER__) = \
      ::troupe::runtime::actor_internal::Register<Class>(TroupeActorMethods(static_cast<Class*>(nullptr)))

/// Methods that may run twice: a call that may or may not have run is made again when the actor comes back. Before TROUPE_ACTOR.
#define TROUPE_IDEMPOTENT(Class, ...)                            \
  [[maybe_unused]] inline auto TroupeIdempotentMethods(Class*) { \
    return ::troupe::runtime::MethodList<__VA_ARGS__>{""};       \
  }                                                              \
  static_assert(true)
