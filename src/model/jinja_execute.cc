#include <algorithm>

#include "model/jinja_interpreter.h"
#include "model/jinja_print.h"

namespace nmc::model::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    const auto it = std::ranges::find(scope->variables_, name, &std::pair<std::string, Value>::first);
    if (it != scope->variables_.end()) return &it->second;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  const auto it = std::ranges::find(variables_, name, &std::pair<std::string, Value>::first);
  if (it != variables_.end()) {
    it->second = std::move(value);
  } else {
    variables_.emplace_back(name, std::move(value));
  }
}

Interpreter::~Interpreter() {
  for (const std::shared_ptr<Namespace>& names : namespaces_) {
    const auto members = std::move(names->members);
    names->members.clear();
  }
}

Result<Text> Interpreter::render(const Body& body, const Variables& variables) {
  scope_ = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables) scope_->set(name, value);
  const ScopeGuard guard(*this, scope_);
  return capture(body);
}

Result<Text> Interpreter::capture(const Body& body) {
  Text text;
  Text* const before = std::exchange(output_, &text);
  const Result<Flow> done = execute(body);
  output_ = before;
  if (!done) return Failure(done.error());
  return text;
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const Statement& statement : body) {
    NMC_ASSIGN_OR_RETURN(const Flow flow, execute(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement) {
  const DepthGuard guard(depth_);
  Result<void> allowed = budget_.take_steps(1);
  if (!allowed) return at_line(statement.line, std::move(allowed).error());
  Result<Flow> flow = std::visit([&](const auto& node) { return execute_node(node); }, statement.node);
  if (!flow) return at_line(statement.line, std::move(flow).error());
  return flow;
}

Result<void> Interpreter::print(const Value& value) {
  NMC_ASSIGN_OR_RETURN(const Text text, to_text(value, budget_));
  NMC_RETURN_IF_ERROR(budget_.take_bytes(text.cost()));
  output_->append(text);
  return Budget::check_text(output_->cost());
}

Result<Interpreter::Flow> Interpreter::execute_node(const OutputStatement& node) {
  NMC_ASSIGN_OR_RETURN(const Value value, evaluate(*node.value));
  NMC_RETURN_IF_ERROR(print(value));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_node(const IfStatement& node) {
  for (const Branch& branch : node.branches) {
    bool taken = branch.test == nullptr;
    if (!taken) {
      NMC_ASSIGN_OR_RETURN(const Value test, evaluate(*branch.test));
      taken = is_true(test);
    }
    if (taken) return execute(branch.body);
  }
  return Flow::kNext;
}

// ---- Loops
// -----------------------------------------------------------------------------------------------------------

Result<Interpreter::Flow> Interpreter::execute_node(const ForStatement& node) {
  NMC_ASSIGN_OR_RETURN(const Value all, evaluate(*node.items));
  NMC_ASSIGN_OR_RETURN(Items items, take_items(all, budget_));
  const std::shared_ptr<Scope> outer = scope_;
  Loop::Passes passes;
  if (node.test != nullptr) {
    passes = [this, &node, outer](const Value& item) -> Result<bool> {
      const ScopeGuard guard(*this, outer);
      NMC_RETURN_IF_ERROR(assign(node.target, item));
      NMC_ASSIGN_OR_RETURN(const Value test, evaluate(*node.test));
      return is_true(test);
    };
  }
  const auto loop = std::make_shared<Loop>(std::move(items), std::move(passes));
  Result<Flow> flow = run_loop(node, loop, outer);
  loop->end();
  return flow;
}

Result<Interpreter::Flow> Interpreter::run_loop(const ForStatement& node, const std::shared_ptr<Loop>& loop,
                                                const std::shared_ptr<Scope>& outer) {
  bool any = false;  // as Jinja has it: a round that `break` or `continue` cuts short doesn't count
  while (true) {
    NMC_ASSIGN_OR_RETURN(std::optional<Value> item, loop->next());
    if (!item) break;
    const ScopeGuard guard(*this, outer);
    scope_->set("loop", loop);
    NMC_RETURN_IF_ERROR(assign(node.target, std::move(*item)));
    NMC_ASSIGN_OR_RETURN(const Flow flow, execute(node.body));
    if (flow == Flow::kBreak) break;
    any = any || flow == Flow::kNext;
  }
  if (any) return Flow::kNext;
  const ScopeGuard guard(*this, outer);
  return execute(node.otherwise);
}

// ---- Assignment
// ------------------------------------------------------------------------------------------------------

Result<void> Interpreter::assign(const Target& target, Value value) {
  if (target.is_tuple) {
    NMC_ASSIGN_OR_RETURN(Items items, take_items(value, budget_));
    if (items.size() != target.parts.size()) {
      return invalid_argument("{} names for {} values", target.parts.size(), items.size());
    }
    for (std::size_t i = 0; i < items.size(); ++i) NMC_RETURN_IF_ERROR(assign(target.parts[i], std::move(items[i])));
    return {};
  }
  if (target.member.empty()) {
    scope_->set(target.name, std::move(value));
    return {};
  }
  const Value* found = scope_->find(target.name);
  Namespace* names = found == nullptr ? nullptr : found->name_space();
  if (names == nullptr)
    return invalid_argument("`{}.{}` is set, but `{}` is no namespace", target.name, target.member, target.name);
  names->set(target.member, std::move(value));
  return {};
}

Result<Interpreter::Flow> Interpreter::execute_node(const SetStatement& node) {
  NMC_ASSIGN_OR_RETURN(Value value, evaluate(*node.value));
  NMC_RETURN_IF_ERROR(assign(node.target, std::move(value)));
  return Flow::kNext;
}

Result<Value> Interpreter::filter_text(const ExpressionPtr& filter, Text text) {
  if (filter == nullptr) return Value(std::move(text));
  Value before = std::exchange(block_input_, Value(std::move(text)));
  Result<Value> filtered = evaluate(*filter);
  block_input_ = std::move(before);
  return filtered;
}

Result<Interpreter::Flow> Interpreter::execute_node(const SetBlockStatement& node) {
  Value value;
  {
    const ScopeGuard guard(*this, scope_);
    NMC_ASSIGN_OR_RETURN(Text text, capture(node.body));
    NMC_ASSIGN_OR_RETURN(value, filter_text(node.filter, std::move(text)));
  }
  NMC_RETURN_IF_ERROR(assign(node.target, std::move(value)));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_node(const FilterStatement& node) {
  const ScopeGuard guard(*this, scope_);
  NMC_ASSIGN_OR_RETURN(Text text, capture(node.body));
  NMC_ASSIGN_OR_RETURN(const Value value, filter_text(node.filter, std::move(text)));
  NMC_RETURN_IF_ERROR(print(value));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_node(const WithStatement& node) {
  Items values;
  for (const auto& [target, expression] : node.values) {
    NMC_ASSIGN_OR_RETURN(values.emplace_back(), evaluate(*expression));
  }
  const ScopeGuard guard(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) {
    NMC_RETURN_IF_ERROR(assign(node.values[i].first, std::move(values[i])));
  }
  return execute(node.body);
}

// ---- Macros
// ----------------------------------------------------------------------------------------------------------

Value Interpreter::macro_value(const Macro& macro) {
  auto callable = std::make_shared<Callable>();
  callable->kind = Callable::Kind::kMacro;
  callable->name = macro.name;
  callable->macro = &macro;
  callable->scope = scope_;
  return Value(std::shared_ptr<const Callable>(std::move(callable)));
}

Result<Interpreter::Flow> Interpreter::execute_node(const MacroStatement& node) {
  scope_->set(node.macro->name, macro_value(*node.macro));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_node(const CallStatement& node) {
  const auto& call_node = std::get<CallExpression>(node.call->node);
  NMC_ASSIGN_OR_RETURN(const Value callee, evaluate(*call_node.callee));
  NMC_ASSIGN_OR_RETURN(Arguments arguments, evaluate_arguments(call_node.arguments));
  arguments.named.emplace_back("caller", macro_value(*node.caller));
  NMC_ASSIGN_OR_RETURN(const Value value, call(callee, std::move(arguments)));
  NMC_RETURN_IF_ERROR(print(value));
  return Flow::kNext;
}

}  // namespace nmc::model::jinja
