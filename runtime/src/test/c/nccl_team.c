/*
 * Teams of ranks and pointers to peers' windows, as kernels use them. All ranks are within reach of
 * each other by loads and stores here: the team of those is the whole world.
 */
#include "nccl_internal.h"

#if STANDIN_NCCL_VERSION >= 22803

ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  static struct standin_site site = {"ncclTeamWorld", NULL, 0, 0};
  standin_call(&site, nn_rank_of(comm));
  return (ncclTeam_t){comm->nranks, comm->rank, 1};
}
TWIN(ncclTeamWorld);

ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  static struct standin_site site = {"ncclTeamLsa", NULL, 0, 0};
  standin_call(&site, nn_rank_of(comm));
  return (ncclTeam_t){comm->nranks, comm->rank, 1};
}
TWIN(ncclTeamLsa);

ncclTeam_t ncclTeamRail(ncclComm_t comm) {
  static struct standin_site site = {"ncclTeamRail", NULL, 0, 0};
  standin_call(&site, nn_rank_of(comm));
  return (ncclTeam_t){1, 0, comm->nranks};
}
TWIN(ncclTeamRail);

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return comm->rank + (rank - team.rank) * team.stride;
}
TWIN(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return comm->rank + (rank - team.rank) * team.stride;
}
TWIN(ncclTeamRankToLsa);

#else
/* ISO C forbids an empty file. */
typedef int nothing_before_2_28_3;
#endif
