/*
 * Graphs. An executable graph is cut into chains of nodes; each chain but the first gets a thread at
 * a launch, so that operations in parallel branches which wait for other ranks never wait for each
 * other.
 */
#include "cuda_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRAPH_MAGIC 0x47525048
#define EXEC_MAGIC 0x47455845

struct plan_node {
  struct op *op;
  size_t *deps;
  size_t dep_count;
  size_t chain;
};

/* What a launch runs; an update makes another, launches under way keep theirs. */
struct plan {
  int refs;
  size_t count;
  size_t chains;
  struct plan_node nodes[];
};

struct CUgraphExec_st {
  unsigned magic;
  CUcontext ctx;
  struct plan *plan;
  struct mark *last;
};

static bool is_graph(CUgraph graph) {
  return graph != NULL && graph->magic == GRAPH_MAGIC;
}

static bool is_exec(CUgraphExec exec) {
  return exec != NULL && exec->magic == EXEC_MAGIC;
}

CUgraph si_graph_create(void) {
  CUgraph graph = calloc(1, sizeof *graph);
  graph->magic = GRAPH_MAGIC;
  standin_count("graph", 1);
  return graph;
}

CUgraphNode si_graph_add(CUgraph graph, struct op *op, const struct nodes *deps) {
  CUgraphNode node = calloc(1, sizeof *node);
  node->graph = graph;
  node->index = graph->nodes.count;
  node->op = op;
  si_nodes_set(&node->deps, deps);
  graph->nodes.at = realloc(graph->nodes.at, (node->index + 1) * sizeof node);
  graph->nodes.at[graph->nodes.count++] = node;
  return node;
}

void si_graph_free(CUgraph graph) {
  for (size_t i = 0; i < graph->nodes.count; i++) {
    si_op_release(graph->nodes.at[i]->op);
    si_nodes_clear(&graph->nodes.at[i]->deps);
    free(graph->nodes.at[i]);
  }
  si_nodes_clear(&graph->nodes);
  graph->magic = DEAD_MAGIC;
  standin_count("graph", -1);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
  ENTER(cuGraphCreate, NEEDS_INIT);
  REQUIRE(graph != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
  *graph = si_graph_create();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  ENTER(cuGraphDestroy, NEEDS_INIT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(is_graph(graph) && !graph->capturing, CUDA_ERROR_INVALID_VALUE);
  si_graph_free(graph);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph original) {
  ENTER(cuGraphClone, NEEDS_INIT);
  REQUIRE(clone != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(is_graph(original), CUDA_ERROR_INVALID_VALUE);
  *clone = si_graph_create();
  for (size_t i = 0; i < original->nodes.count; i++) {
    CUgraphNode from = original->nodes.at[i];
    struct nodes deps = {NULL, 0};
    for (size_t d = 0; d < from->deps.count; d++) {
      si_nodes_add(&deps, (*clone)->nodes.at[from->deps.at[d]->index]);
    }
    si_op_retain(from->op);
    si_graph_add(*clone, from->op, &deps);
    si_nodes_clear(&deps);
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *numNodes) {
  ENTER(cuGraphGetNodes, NEEDS_INIT);
  REQUIRE(numNodes != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(is_graph(graph), CUDA_ERROR_INVALID_VALUE);
  if (nodes == NULL) {
    *numNodes = graph->nodes.count;
  } else {
    for (size_t i = 0; i < *numNodes; i++) {
      nodes[i] = i < graph->nodes.count ? graph->nodes.at[i] : NULL;
    }
    *numNodes = *numNodes < graph->nodes.count ? *numNodes : graph->nodes.count;
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags) {
  ENTER(cuGraphDebugDotPrint, NEEDS_INIT);
  (void)flags;
  REQUIRE(path != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  FILE *file = NULL;
  pthread_mutex_lock(&si_lock);
  CHECK(is_graph(graph), CUDA_ERROR_INVALID_VALUE);
  file = fopen(path, "w");
  CHECK(file != NULL, CUDA_ERROR_OPERATING_SYSTEM);
  fprintf(file, "digraph dot {\n");
  for (size_t i = 0; i < graph->nodes.count; i++) {
    CUgraphNode node = graph->nodes.at[i];
    fprintf(file, "  node_%zu [label=\"type %d\"];\n", i, (int)node->op->type);
    for (size_t d = 0; d < node->deps.count; d++) {
      fprintf(file, "  node_%zu -> node_%zu;\n", node->deps.at[d]->index, i);
    }
  }
  fprintf(file, "}\n");
  fclose(file);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  ENTER(cuGraphNodeGetType, NEEDS_INIT);
  REQUIRE(node != NULL && type != NULL, CUDA_ERROR_INVALID_VALUE);
  *type = node->op->type;
  return CUDA_SUCCESS;
}

static struct plan *plan_create(CUgraph graph) {
  size_t count = graph->nodes.count;
  struct plan *plan = calloc(1, sizeof *plan + count * sizeof plan->nodes[0]);
  size_t *ends = calloc(count + 1, sizeof *ends);
  plan->refs = 1;
  plan->count = count;
  for (size_t i = 0; i < count; i++) {
    CUgraphNode from = graph->nodes.at[i];
    struct plan_node *node = &plan->nodes[i];
    node->op = from->op;
    si_op_retain(node->op);
    node->dep_count = from->deps.count;
    node->deps = calloc(from->deps.count + 1, sizeof *node->deps);
    node->chain = plan->chains;
    for (size_t d = 0; d < from->deps.count; d++) {
      size_t dep = from->deps.at[d]->index;
      node->deps[d] = dep;
      /* Goes on with the chain that ends at one of its dependencies. */
      if (node->chain == plan->chains && ends[plan->nodes[dep].chain] == dep) {
        node->chain = plan->nodes[dep].chain;
      }
    }
    plan->chains += node->chain == plan->chains;
    ends[node->chain] = i;
  }
  free(ends);
  return plan;
}

static void plan_release(struct plan *plan) {
  if (__atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL) == 0) {
    for (size_t i = 0; i < plan->count; i++) {
      si_op_release(plan->nodes[i].op);
      free(plan->nodes[i].deps);
    }
    free(plan);
  }
}

/* One launch under way. */
struct launch {
  struct plan *plan;
  CUcontext ctx;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool *done;
};

struct chain {
  struct launch *launch;
  size_t number;
  pthread_t thread;
};

static void *run_chain(void *argument) {
  struct chain *chain = argument;
  struct launch *launch = chain->launch;
  struct plan *plan = launch->plan;
  for (size_t i = 0; i < plan->count; i++) {
    struct plan_node *node = &plan->nodes[i];
    if (node->chain == chain->number) {
      pthread_mutex_lock(&launch->lock);
      for (size_t d = 0; d < node->dep_count; d++) {
        while (!launch->done[node->deps[d]]) {
          pthread_cond_wait(&launch->changed, &launch->lock);
        }
      }
      pthread_mutex_unlock(&launch->lock);
      if (__atomic_load_n(&launch->ctx->sticky, __ATOMIC_ACQUIRE) == 0) {
        node->op->run(node->op->data);
      }
      pthread_mutex_lock(&launch->lock);
      launch->done[i] = true;
      pthread_cond_broadcast(&launch->changed);
      pthread_mutex_unlock(&launch->lock);
    }
  }
  return NULL;
}

struct launched {
  struct plan *plan;
  CUcontext ctx;
};

static void run_launch(void *data) {
  struct launched *launched = data;
  struct plan *plan = launched->plan;
  struct launch launch = {.plan = plan, .ctx = launched->ctx};
  pthread_mutex_init(&launch.lock, NULL);
  pthread_cond_init(&launch.changed, NULL);
  launch.done = calloc(plan->count + 1, sizeof *launch.done);
  struct chain *chains = calloc(plan->chains + 1, sizeof *chains);
  for (size_t i = 0; i < plan->chains; i++) {
    chains[i] = (struct chain){.launch = &launch, .number = i};
  }
  for (size_t i = 1; i < plan->chains; i++) {
    if (si_thread(run_chain, &chains[i], &chains[i].thread) != 0) {
      abort();
    }
  }
  if (plan->chains > 0) {
    run_chain(&chains[0]);
  }
  for (size_t i = 1; i < plan->chains; i++) {
    pthread_join(chains[i].thread, NULL);
  }
  free(chains);
  free(launch.done);
  pthread_cond_destroy(&launch.changed);
  pthread_mutex_destroy(&launch.lock);
}

static void release_launch(void *data) {
  struct launched *launched = data;
  plan_release(launched->plan);
  free(launched);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags, NEEDS_CONTEXT);
  REQUIRE(exec != NULL && flags < 16, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(is_graph(graph) && !graph->capturing, CUDA_ERROR_INVALID_VALUE);
  *exec = calloc(1, sizeof **exec);
  (*exec)->magic = EXEC_MAGIC;
  (*exec)->ctx = si_current();
  (*exec)->plan = plan_create(graph);
  standin_count("exec", 1);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
  ENTER(cuGraphUpload, NEEDS_CONTEXT);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  CHECK(is_exec(exec), CUDA_ERROR_INVALID_VALUE);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  ENTER(cuGraphLaunch, NEEDS_INIT);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  CHECK(is_exec(exec), CUDA_ERROR_INVALID_VALUE);
  struct launched *launched = malloc(sizeof *launched);
  __atomic_add_fetch(&exec->plan->refs, 1, __ATOMIC_ACQ_REL);
  *launched = (struct launched){exec->plan, exec->ctx};
  struct op *op = si_op_create(CU_GRAPH_NODE_TYPE_GRAPH, run_launch, launched, release_launch);
  bool captured = stream->capture != NULL;
  if (!captured && exec->last != NULL && exec->last->stream != stream
      && !si_mark_done(exec->last)) {
    /* Launches of one executable graph follow one another. */
    si_submit_mark(stream, WORK_WAIT, exec->last);
  }
  result = si_submit(stream, op);
  if (!captured) {
    si_mark_release(exec->last);
    exec->last = si_tail_mark(stream);
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

static CUgraphExecUpdateResult compare(struct plan *before, struct plan *after, size_t *at) {
  *at = SIZE_MAX;
  if (before->count != after->count) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  for (*at = 0; *at < before->count; ++*at) {
    struct plan_node *one = &before->nodes[*at];
    struct plan_node *other = &after->nodes[*at];
    if (one->dep_count != other->dep_count
        || memcmp(one->deps, other->deps, one->dep_count * sizeof *one->deps) != 0) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    if (one->op->type != other->op->type) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
  ENTER(cuGraphExecUpdate_v2, NEEDS_CONTEXT);
  REQUIRE(info != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(is_exec(exec) && is_graph(graph) && !graph->capturing, CUDA_ERROR_INVALID_VALUE);
  struct plan *plan = plan_create(graph);
  size_t at;
  *info = (CUgraphExecUpdateResultInfo){.result = compare(exec->plan, plan, &at)};
  if (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    plan_release(exec->plan);
    exec->plan = plan;
  } else {
    info->errorNode = at < graph->nodes.count ? graph->nodes.at[at] : NULL;
    plan_release(plan);
    result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ENTER(cuGraphExecDestroy, NEEDS_INIT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(is_exec(exec), CUDA_ERROR_INVALID_VALUE);
  exec->magic = DEAD_MAGIC;
  plan_release(exec->plan);
  si_mark_release(exec->last);
  standin_count("exec", -1);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}
