// A chat template as the parser leaves it: immutable trees of statements and expressions, each with its line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja_filters.h"
#include "model/jinja_operators.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;  // never null unless said so
using Body = std::vector<Statement>;

// ---- Expressions
// -----------------------------------------------------------------------------------------------------

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct ConstantExpression {
  Value value;
};
struct NameExpression {
  std::string name;
};
struct SequenceExpression {
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
};
struct DictExpression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct SignExpression {
  bool negative = false;
  ExpressionPtr operand;
};
struct NotExpression {
  ExpressionPtr operand;
};
struct ArithmeticExpression {
  Arithmetic op;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct LogicExpression {  // gives one of its operands
  bool is_and = false;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct CompareExpression {  // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct ConcatExpression {
  std::vector<ExpressionPtr> parts;
};
struct ConditionalExpression {
  ExpressionPtr test;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // null: undefined
};
struct AttributeExpression {
  ExpressionPtr object;
  std::string name;
};
struct ItemExpression {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct SliceExpression {
  ExpressionPtr object;
  ExpressionPtr start, stop, step;  // null: left out
};
struct CallExpression {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterExpression {
  ExpressionPtr input;  // null: what a block made
  std::string name;
  Filter filter;
  CallArguments arguments;
};
struct TestExpression {
  ExpressionPtr input;
  std::string name;
  Test test;
  CallArguments arguments;
};

struct Expression {
  std::variant<ConstantExpression, NameExpression, SequenceExpression, DictExpression, SignExpression, NotExpression,
               ArithmeticExpression, LogicExpression, CompareExpression, ConcatExpression, ConditionalExpression,
               AttributeExpression, ItemExpression, SliceExpression, CallExpression, FilterExpression, TestExpression>
      node;
  int line = 1;
  int depth = 1;  // of the tree below, bounded by the parser
};

// ---- Statements
// ------------------------------------------------------------------------------------------------------

struct OutputStatement {
  ExpressionPtr value;
};

// What a value is assigned to: a name, a member of a namespace, or several of these that take it apart.
struct Target {
  std::string name;
  std::string member;         // not empty: name.member
  std::vector<Target> parts;  // not empty, or is_tuple: takes a sequence apart
  bool is_tuple = false;
};

struct Branch {
  ExpressionPtr test;  // null: else
  Body body;
};
struct IfStatement {
  std::vector<Branch> branches;
};
struct ForStatement {
  Target target;
  ExpressionPtr items;
  ExpressionPtr test;  // null: all
  Body body;
  Body otherwise;  // when there was no item
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetBlockStatement {
  Target target;
  ExpressionPtr filter;  // null: none
  Body body;
};
struct FilterStatement {
  ExpressionPtr filter;
  Body body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};

struct Parameter {
  std::string name;
  ExpressionPtr absent;  // null: undefined
};
struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false;
  int line = 1;
};
struct MacroStatement {
  std::unique_ptr<const Macro> macro;
};
struct CallStatement {
  ExpressionPtr call;                   // a CallExpression
  std::unique_ptr<const Macro> caller;  // its body
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  std::variant<OutputStatement, IfStatement, ForStatement, SetStatement, SetBlockStatement, FilterStatement,
               WithStatement, MacroStatement, CallStatement, BreakStatement, ContinueStatement>
      node;
  int line = 1;
};

// What can be told of a template without rendering it.
struct TemplateFacts {
  std::vector<std::string> names;        // variables that it reads, sorted
  bool iterates_content = false;         // a loop over what a message's `content` is
  bool asks_if_content_is_text = false;  // `content is string`
};

}  // namespace nmc::model::jinja
