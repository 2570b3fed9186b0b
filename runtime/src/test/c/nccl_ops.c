/* Operations as they are called: checks, then into the group. */
#include "nccl_internal.h"
#include <stdlib.h>
#include <string.h>

static ncclResult_t check_op(struct call *call) {
  ncclComm_t comm = call->comm;
  if (call->op < ncclNumOps) {
    return ncclSuccess;
  }
  int index = (int)call->op - ncclNumOps;
  REQUIRE(index < MAX_OPS && comm->ops[index].used, ncclInvalidArgument,
      "%s : reduction operation %d unknown to this communicator", call->name, (int)call->op);
  call->user = comm->ops[index];
  REQUIRE(call->user.type == call->type, ncclInvalidArgument,
      "Data type supplied to user-created ncclRedOp_t does not match type given to reduction"
      " operation");
  return ncclSuccess;
}

static bool is_one_sided(enum kind kind) {
  return kind == PUT_SIGNAL || kind == SIGNAL || kind == WAIT_SIGNAL;
}

static ncclResult_t check_call(struct call *call) {
  ncclComm_t comm = call->comm;
  CHECK(nn_ready(comm, call->name));
  REQUIRE(!comm->revoked && !comm->suspended && !comm->finalized, ncclInvalidUsage,
      "%s : communicator is revoked, suspended or finalized", call->name);
  REQUIRE(call->peer >= 0 && call->peer < comm->nranks, ncclInvalidArgument,
      "%s : invalid root %d (root should be in the 0..%d range)", call->name, call->peer,
      comm->nranks);
  int types = STANDIN_NCCL_VERSION >= 22400 ? ncclNumTypes : ncclFloat8e4m3;
  REQUIRE(call->type >= 0 && (int)call->type < types, ncclInvalidArgument,
      "%s : invalid type %d", call->name, (int)call->type);
  REQUIRE((int)call->op >= 0, ncclInvalidArgument, "%s : invalid reduction operation %d",
      call->name, (int)call->op);
  if (call->count > 0 && !is_one_sided(call->kind)) {
    bool root = call->peer == comm->rank;
    bool needs_send = call->kind != RECV && (call->kind != BROADCAST || root)
        && (call->kind != SCATTER || root);
    bool needs_recv = call->kind != SEND && (call->kind != REDUCE || root)
        && (call->kind != GATHER || root);
    REQUIRE(!needs_send || call->send != NULL, ncclInvalidArgument,
        "%s : sendbuff argument is NULL", call->name);
    REQUIRE(!needs_recv || call->recv != NULL, ncclInvalidArgument,
        "%s : recvbuff argument is NULL", call->name);
  }
  return check_op(call);
}

static ncclResult_t submit(struct call values) {
  ncclResult_t result = check_call(&values);
  if (result != ncclSuccess) {
    free(values.descs);
    return nn_group_error(result);
  }
  struct call *call = malloc(sizeof *call);
  *call = values;
  return nn_submit(call);
}

#define ENTER_OP(function)                                                                          \
  static struct standin_site site_ = {#function, NULL, 0, 0};                                       \
  struct standin_action action = standin_call(&site_, nn_rank_of(comm));                            \
  if (action.kind == STANDIN_ERROR) {                                                               \
    return nn_group_error(nn_fail((ncclResult_t)action.value, #function ": injected error %ld",     \
        action.value));                                                                             \
  }

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclAllReduce);
  return submit((struct call){ALL_REDUCE, "AllReduce", sendbuff, recvbuff, count, datatype, op, 0,
      comm, stream, .action = action});
}
TWIN(ncclAllReduce);

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count,
    ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclReduce);
  return submit((struct call){REDUCE, "Reduce", sendbuff, recvbuff, count, datatype, op, root,
      comm, stream, .action = action});
}
TWIN(ncclReduce);

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclBroadcast);
  return submit((struct call){BROADCAST, "Broadcast", sendbuff, recvbuff, count, datatype, ncclSum,
      root, comm, stream, .action = action});
}
TWIN(ncclBroadcast);

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
    ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclBcast);
  return submit((struct call){BROADCAST, "Bcast", buff, buff, count, datatype, ncclSum, root, comm,
      stream, .action = action});
}
TWIN(ncclBcast);

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclReduceScatter);
  return submit((struct call){REDUCE_SCATTER, "ReduceScatter", sendbuff, recvbuff, recvcount,
      datatype, op, 0, comm, stream, .action = action});
}
TWIN(ncclReduceScatter);

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclAllGather);
  return submit((struct call){ALL_GATHER, "AllGather", sendbuff, recvbuff, sendcount, datatype,
      ncclSum, 0, comm, stream, .action = action});
}
TWIN(ncclAllGather);

#if STANDIN_NCCL_VERSION >= 22803
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclAlltoAll);
  return submit((struct call){ALL_TO_ALL, "AlltoAll", sendbuff, recvbuff, count, datatype, ncclSum,
      0, comm, stream, .action = action});
}
TWIN(ncclAlltoAll);

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count,
    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclGather);
  return submit((struct call){GATHER, "Gather", sendbuff, recvbuff, count, datatype, ncclSum, root,
      comm, stream, .action = action});
}
TWIN(ncclGather);

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclScatter);
  return submit((struct call){SCATTER, "Scatter", sendbuff, recvbuff, count, datatype, ncclSum,
      root, comm, stream, .action = action});
}
TWIN(ncclScatter);
#endif

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclSend);
  return submit((struct call){SEND, "Send", sendbuff, NULL, count, datatype, ncclSum, peer, comm,
      stream, .action = action});
}
TWIN(ncclSend);

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclRecv);
  return submit((struct call){RECV, "Recv", NULL, recvbuff, count, datatype, ncclSum, peer, comm,
      stream, .action = action});
}
TWIN(ncclRecv);

#if STANDIN_NCCL_VERSION >= 22902
static ncclResult_t check_one_sided(int sigIdx, int ctx, unsigned flags) {
  REQUIRE(sigIdx == 0 && ctx == 0 && flags == 0, nn_group_error(ncclInvalidArgument),
      "sigIdx %d, ctx %d and flags %u must be 0", sigIdx, ctx, flags);
  return ncclSuccess;
}

ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
    ncclComm_t comm, cudaStream_t stream) {
  ENTER_OP(ncclPutSignal);
  CHECK(check_one_sided(sigIdx, ctx, flags));
  REQUIRE(localbuff != NULL && peerWin != NULL, nn_group_error(ncclInvalidArgument),
      "PutSignal : localbuff or peerWin argument is NULL");
  return submit((struct call){PUT_SIGNAL, "PutSignal", localbuff, NULL, count, datatype, ncclSum,
      peer, comm, stream, .action = action, .window = peerWin, .offset = peerWinOffset});
}
TWIN(ncclPutSignal);

ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
    cudaStream_t stream) {
  ENTER_OP(ncclSignal);
  CHECK(check_one_sided(sigIdx, ctx, flags));
  return submit((struct call){SIGNAL, "Signal", NULL, NULL, 0, ncclInt8, ncclSum, peer, comm,
      stream, .action = action});
}
TWIN(ncclSignal);

ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm,
    cudaStream_t stream) {
  ENTER_OP(ncclWaitSignal);
  CHECK(nn_group_error(nn_check(comm, "WaitSignal")));
  REQUIRE(nDesc > 0 && signalDescs != NULL, nn_group_error(ncclInvalidArgument),
      "WaitSignal : signalDescs argument is NULL or nDesc %d invalid", nDesc);
  for (int i = 0; i < nDesc; i++) {
    REQUIRE(signalDescs[i].peer >= 0 && signalDescs[i].peer < comm->nranks
            && signalDescs[i].opCnt >= 0,
        nn_group_error(ncclInvalidArgument), "WaitSignal : invalid peer %d",
        signalDescs[i].peer);
    CHECK(check_one_sided(signalDescs[i].sigIdx, signalDescs[i].ctx, 0));
  }
  size_t size = (size_t)nDesc * sizeof *signalDescs;
  ncclWaitSignalDesc_t *descs = malloc(size);
  memcpy(descs, signalDescs, size);
  return submit((struct call){WAIT_SIGNAL, "WaitSignal", NULL, NULL, 0, ncclInt8, ncclSum, 0, comm,
      stream, .action = action, .waits = nDesc, .descs = descs});
}
TWIN(ncclWaitSignal);
#endif

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
    ncclScalarResidence_t residence, ncclComm_t comm) {
  ENTER_NOW(ncclRedOpCreatePreMulSum, comm);
  CHECK(nn_ready(comm, "ncclRedOpCreatePreMulSum"));
  REQUIRE(op != NULL && scalar != NULL && datatype >= 0 && datatype < ncclNumTypes,
      ncclInvalidArgument, "ncclRedOpCreatePreMulSum : op or scalar is NULL, or the type is wrong");
  for (int i = 0; i < MAX_OPS; i++) {
    struct user_op *user = &comm->ops[i];
    if (!user->used) {
      *user = (struct user_op){.used = true, .type = datatype,
          .on_device = residence == ncclScalarDevice};
      if (user->on_device) {
        memcpy(user->scalar, &scalar, sizeof scalar);
      } else {
        memcpy(user->scalar, scalar, nn_type_size(datatype));
      }
      *op = (ncclRedOp_t)(ncclNumOps + i);
      return ncclSuccess;
    }
  }
  return nn_fail(ncclInternalError, "the stand-in has at most %d operations", MAX_OPS);
}
TWIN(ncclRedOpCreatePreMulSum);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  ENTER_NOW(ncclRedOpDestroy, comm);
  REQUIRE(op < 0 || op >= ncclNumOps, ncclInvalidArgument,
      "ncclRedOpDestroy : operator is a NCCL builtin.");
  CHECK(nn_check(comm, "ncclRedOpDestroy"));
  int index = (int)op - ncclNumOps;
  REQUIRE(index >= 0 && index < MAX_OPS && comm->ops[index].used, ncclInvalidArgument,
      "ncclRedOpDestroy : operator unknown to this communicator.");
  comm->ops[index].used = false;
  return ncclSuccess;
}
TWIN(ncclRedOpDestroy);
