#include <algorithm>

#include "model/jinja_interpreter.h"
#include "model/jinja_lexer.h"
#include "model/jinja_methods.h"
#include "model/jinja_operators.h"
#include "model/jinja_print.h"

namespace nmc::model::jinja {

Result<Value> Interpreter::evaluate(const Expression& expression) {
  const DepthGuard guard(depth_);
  Result<void> allowed = budget_.take_steps(1);
  if (allowed && depth_ > kRecursionMax) {
    allowed = invalid_argument("more than {} expressions and blocks within each other, as of a macro that calls itself",
                               kRecursionMax);
  }
  if (!allowed) return at_line(expression.line, std::move(allowed).error());
  Result<Value> value = std::visit([&](const auto& node) { return evaluate_node(node); }, expression.node);
  if (!value) return at_line(expression.line, std::move(value).error());
  return value;
}

// The innermost line is the one to name.
Failure Interpreter::at_line(int line, Error error) {
  if (located_) return Failure(std::move(error));
  located_ = true;
  return error_at(line, std::move(error));
}

Result<Value> Interpreter::evaluate_or_none(const ExpressionPtr& expression) {
  return expression == nullptr ? Result<Value>(None()) : evaluate(*expression);
}

Result<Value> Interpreter::evaluate_node(const NameExpression& node) {
  if (const Value* found = scope_->find(node.name)) return *found;
  if (!is_global(node.name)) return Value::undefined(fmt::format("`{}` is undefined", node.name));
  auto function = std::make_shared<Callable>();
  function->name = node.name;
  return Value(std::shared_ptr<const Callable>(std::move(function)));
}

Result<Value> Interpreter::evaluate_node(const SequenceExpression& node) {
  Items items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) {
    NMC_ASSIGN_OR_RETURN(items.emplace_back(), evaluate(*item));
  }
  return node.is_tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
}

Result<Value> Interpreter::evaluate_node(const DictExpression& node) {
  Dict dict;
  for (const auto& [key_node, value_node] : node.entries) {
    NMC_ASSIGN_OR_RETURN(Value key, evaluate(*key_node));
    NMC_ASSIGN_OR_RETURN(Value value, evaluate(*value_node));
    NMC_RETURN_IF_ERROR(dict.set(std::move(key), std::move(value), budget_));
  }
  return make_dict(std::move(dict));
}

Result<Value> Interpreter::evaluate_node(const SignExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value operand, evaluate(*node.operand));
  return node.negative ? negate(operand) : plus(operand);
}

Result<Value> Interpreter::evaluate_node(const NotExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value operand, evaluate(*node.operand));
  return Value(!is_true(operand));
}

Result<Value> Interpreter::evaluate_node(const ArithmeticExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value left, evaluate(*node.left));
  NMC_ASSIGN_OR_RETURN(const Value right, evaluate(*node.right));
  return calculate(node.op, left, right, budget_);
}

Result<Value> Interpreter::evaluate_node(const LogicExpression& node) {
  NMC_ASSIGN_OR_RETURN(Value left, evaluate(*node.left));
  return is_true(left) == node.is_and ? evaluate(*node.right) : Result<Value>(std::move(left));
}

Result<Value> Interpreter::evaluate_node(const CompareExpression& node) {
  NMC_ASSIGN_OR_RETURN(Value left, evaluate(*node.first));
  for (const auto& [op, operand] : node.rest) {
    NMC_ASSIGN_OR_RETURN(Value right, evaluate(*operand));
    NMC_ASSIGN_OR_RETURN(const bool holds, compare(op, left, right, budget_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::evaluate_node(const ConcatExpression& node) {
  Text joined;
  for (const ExpressionPtr& part : node.parts) {
    NMC_ASSIGN_OR_RETURN(const Value value, evaluate(*part));
    NMC_ASSIGN_OR_RETURN(const Text text, to_text(value, budget_));
    NMC_RETURN_IF_ERROR(budget_.take_bytes(text.cost()));
    joined.append(text);
    NMC_RETURN_IF_ERROR(Budget::check_text(joined.cost()));
  }
  return Value(std::move(joined));
}

Result<Value> Interpreter::evaluate_node(const ConditionalExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value test, evaluate(*node.test));
  if (is_true(test)) return evaluate(*node.then);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return Value::undefined("the condition of an `if` without `else` is false");
}

Result<Value> Interpreter::evaluate_node(const AttributeExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value object, evaluate(*node.object));
  if (const std::shared_ptr<Loop> loop = object.loop()) return loop->attribute(node.name, object);
  return get_attribute(object, node.name, budget_);
}

Result<Value> Interpreter::evaluate_node(const ItemExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value object, evaluate(*node.object));
  NMC_ASSIGN_OR_RETURN(const Value key, evaluate(*node.key));
  const std::shared_ptr<Loop> loop = object.loop();
  if (loop != nullptr && key.text() != nullptr) return loop->attribute(key.text()->bytes(), object);
  return get_item(object, key, budget_);
}

Result<Value> Interpreter::evaluate_node(const SliceExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value object, evaluate(*node.object));
  Slice slice;
  NMC_ASSIGN_OR_RETURN(slice.start, evaluate_or_none(node.start));
  NMC_ASSIGN_OR_RETURN(slice.stop, evaluate_or_none(node.stop));
  NMC_ASSIGN_OR_RETURN(slice.step, evaluate_or_none(node.step));
  return get_slice(object, slice, budget_);
}

Result<Value> Interpreter::evaluate_node(const FilterExpression& node) {
  Value input = block_input_;
  if (node.input != nullptr) {
    NMC_ASSIGN_OR_RETURN(input, evaluate(*node.input));
  }
  NMC_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(node.arguments));
  return node.filter(input, arguments, budget_);
}

Result<Value> Interpreter::evaluate_node(const TestExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value input, evaluate(*node.input));
  NMC_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(node.arguments));
  NMC_ASSIGN_OR_RETURN(const bool holds, node.test(input, arguments, budget_));
  return Value(holds);
}

// ---- Calls
// -----------------------------------------------------------------------------------------------------------

Result<Arguments> Interpreter::evaluate_arguments(const CallArguments& given) {
  Arguments arguments;
  for (const ExpressionPtr& one : given.positional) {
    NMC_ASSIGN_OR_RETURN(arguments.positional.emplace_back(), evaluate(*one));
  }
  for (const auto& [name, one] : given.named) {
    NMC_ASSIGN_OR_RETURN(Value value, evaluate(*one));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<Value> Interpreter::evaluate_node(const CallExpression& node) {
  NMC_ASSIGN_OR_RETURN(const Value callee, evaluate(*node.callee));
  NMC_ASSIGN_OR_RETURN(Arguments arguments, evaluate_arguments(node.arguments));
  return call(callee, std::move(arguments));
}

Result<Value> Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) return undefined_error(callee);
  if (callee.loop() != nullptr) return unsupported("calling `loop`, for a recursive loop, isn't supported");
  const Callable* callable = callee.callable();
  if (callable == nullptr) return invalid_argument("{} can't be called", type_name(callee));
  switch (callable->kind) {
    case Callable::Kind::kFunction: return call_global(callable->name, arguments);
    case Callable::Kind::kMacro: return call_macro(*callable, std::move(arguments));
    case Callable::Kind::kMethod: break;
  }
  if (const std::shared_ptr<Loop> loop = callable->self.loop()) return loop->call(callable->name, arguments, budget_);
  return call_method(*callable, arguments, budget_);
}

// Parameters are filled by position, then by name, then by their defaults, which see the parameters before them.
Result<Value> Interpreter::call_macro(const Callable& callable, Arguments arguments) {
  const Macro& macro = *callable.macro;
  const std::shared_ptr<Scope> defined_in = callable.scope.lock();
  if (defined_in == nullptr) return invalid_argument("`{}` is called outside of the block that defines it", macro.name);
  if (arguments.positional.size() > macro.parameters.size()) {
    return invalid_argument("`{}` takes at most {} arguments, got {}", macro.name, macro.parameters.size(),
                            arguments.positional.size());
  }
  const auto take_named = [&](std::string_view name) {
    const auto it = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
    if (it == arguments.named.end()) return std::optional<Value>();
    std::optional<Value> value = std::move(it->second);
    arguments.named.erase(it);
    return value;
  };
  const ScopeGuard guard(*this, defined_in);
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(parameter.name);
    }
    if (!value && parameter.absent != nullptr) {
      NMC_ASSIGN_OR_RETURN(value, evaluate(*parameter.absent));
    }
    if (!value) value = Value::undefined(fmt::format("the parameter `{}` was not given", parameter.name));
    scope_->set(parameter.name, std::move(*value));
  }
  if (macro.uses_caller) {
    scope_->set("caller", take_named("caller").value_or(Value::undefined("`caller` is undefined")));
  }
  if (!arguments.named.empty()) {
    return invalid_argument("`{}` takes no argument `{}`", macro.name, arguments.named.front().first);
  }
  NMC_ASSIGN_OR_RETURN(Text text, capture(macro.body));
  return Value(std::move(text));
}

}  // namespace nmc::model::jinja
