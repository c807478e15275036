// Renders the trees of jinja_ast.h. One object renders once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/jinja_ast.h"
#include "model/jinja_loop.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// The names of a block, and behind them those around it.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);

 private:
  std::shared_ptr<Scope> parent_;
  Variables variables_;
};

class Interpreter {
 public:
  // Both outlive this.
  Interpreter(Budget& budget, const Clock& clock) : budget_(budget), clock_(clock) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Errors begin with "line N: ", except that of raise_exception(), which is the template's own text.
  Result<Text> render(const Body& body, const Variables& variables);
  bool raised() const { return raised_; }  // after a failure: by raise_exception()

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class ScopeGuard;
  class DepthGuard;

  // jinja_evaluate.cc
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_or_none(const ExpressionPtr& expression);
  Result<Value> evaluate_node(const ConstantExpression& node) { return node.value; }
  Result<Value> evaluate_node(const NameExpression& node);
  Result<Value> evaluate_node(const SequenceExpression& node);
  Result<Value> evaluate_node(const DictExpression& node);
  Result<Value> evaluate_node(const SignExpression& node);
  Result<Value> evaluate_node(const NotExpression& node);
  Result<Value> evaluate_node(const ArithmeticExpression& node);
  Result<Value> evaluate_node(const LogicExpression& node);
  Result<Value> evaluate_node(const CompareExpression& node);
  Result<Value> evaluate_node(const ConcatExpression& node);
  Result<Value> evaluate_node(const ConditionalExpression& node);
  Result<Value> evaluate_node(const AttributeExpression& node);
  Result<Value> evaluate_node(const ItemExpression& node);
  Result<Value> evaluate_node(const SliceExpression& node);
  Result<Value> evaluate_node(const CallExpression& node);
  Result<Value> evaluate_node(const FilterExpression& node);
  Result<Value> evaluate_node(const TestExpression& node);
  Result<Arguments> evaluate_arguments(const CallArguments& given);
  Result<Value> call(const Value& callee, Arguments arguments);
  Result<Value> call_macro(const Callable& callable, Arguments arguments);

  // jinja_globals.cc
  static bool is_global(std::string_view name);
  Result<Value> call_global(std::string_view name, const Arguments& arguments);
  Result<Value> make_namespace(const Arguments& arguments);
  Result<Value> raise_exception(const Arguments& arguments);
  Result<Value> strftime_now(const Arguments& arguments);

  // jinja_execute.cc
  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& statement);
  Result<Flow> execute_node(const OutputStatement& node);
  Result<Flow> execute_node(const IfStatement& node);
  Result<Flow> execute_node(const ForStatement& node);
  Result<Flow> execute_node(const SetStatement& node);
  Result<Flow> execute_node(const SetBlockStatement& node);
  Result<Flow> execute_node(const FilterStatement& node);
  Result<Flow> execute_node(const WithStatement& node);
  Result<Flow> execute_node(const MacroStatement& node);
  Result<Flow> execute_node(const CallStatement& node);
  Result<Flow> execute_node(const BreakStatement&) { return Flow::kBreak; }
  Result<Flow> execute_node(const ContinueStatement&) { return Flow::kContinue; }
  Result<Flow> run_loop(const ForStatement& node, const std::shared_ptr<Loop>& loop,
                        const std::shared_ptr<Scope>& outer);
  Result<Value> filter_text(const ExpressionPtr& filter, Text text);
  Result<Text> capture(const Body& body);  // what it prints, in the scope that is current
  Result<void> print(const Value& value);
  Result<void> assign(const Target& target, Value value);
  Value macro_value(const Macro& macro);

  Failure at_line(int line, Error error);

  Budget& budget_;
  const Clock& clock_;
  std::shared_ptr<Scope> scope_;
  Text* output_ = nullptr;
  Value block_input_;  // of the innermost filter whose input is a block
  int depth_ = 0;
  bool located_ = false;  // the error on its way up has its line
  bool raised_ = false;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // all of them, to take circles apart
};

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> parent)
      : interpreter_(interpreter),
        before_(std::exchange(interpreter.scope_, std::make_shared<Scope>(std::move(parent)))) {}
  ~ScopeGuard() { interpreter_.scope_ = std::move(before_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> before_;
};

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace nmc::model::jinja
