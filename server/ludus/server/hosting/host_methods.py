"""What a host answers without any episode: requests about environments, tasks and worlds."""

from __future__ import annotations

from ludus.protocol import episodes as e
from ludus.protocol import worlds as w
from ludus.server.auth.principal import Principal
from ludus.server.tasks.service import TaskService
from ludus.server.worlds.requests import WorldRequests


class HostMethods:
    """The base of `EpisodeHost` with the methods that need no episode."""

    task_service: TaskService
    world_requests: WorldRequests

    # ── environments and tasks ─────────────────────────────────────────────────────────────────────────────────────

    async def list_environments(
        self, params: e.ListEnvironmentsParams, principal: Principal
    ) -> e.ListEnvironmentsResult:
        """Return all environments."""
        return await self.task_service.list_environments()

    async def list_splits(self, params: e.ListSplitsParams, principal: Principal) -> e.ListSplitsResult:
        """Return the splits of one environment."""
        return await self.task_service.list_splits(params)

    async def list_tasks(self, params: e.ListTasksParams, principal: Principal) -> e.ListTasksResult:
        """Return one page of tasks."""
        return await self.task_service.list(params, principal)

    async def get_task(self, params: e.GetTaskParams, principal: Principal) -> e.GetTaskResult:
        """Return one task."""
        return await self.task_service.get(params, principal)

    async def sample_tasks(self, params: e.SampleTasksParams, principal: Principal) -> e.SampleTasksResult:
        """Return a sample of tasks."""
        return await self.task_service.sample(params, principal)

    async def report_outcomes(self, params: e.ReportOutcomesParams, principal: Principal) -> e.ReportOutcomesResult:
        """Record task outcomes for the curriculum."""
        return await self.task_service.report(params, principal)

    # ── worlds ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def list_worlds(self, params: w.ListWorldsParams, principal: Principal) -> w.ListWorldsResult:
        """Return one page of the principal's worlds."""
        return await self.world_requests.list(params, principal)

    async def get_world(self, params: w.GetWorldParams, principal: Principal) -> w.GetWorldResult:
        """Return one world."""
        return await self.world_requests.get(params, principal)

    async def branch_world(self, params: w.BranchWorldParams, principal: Principal) -> w.BranchWorldResult:
        """Make branches of a world, once per key."""
        return await self.world_requests.branch(params, principal)

    async def reset_world(self, params: w.ResetWorldParams, principal: Principal) -> w.ResetWorldResult:
        """Bring a world back to an earlier version, once per key."""
        return await self.world_requests.reset(params, principal)

    async def delete_world(self, params: w.DeleteWorldParams, principal: Principal) -> w.DeleteWorldResult:
        """Delete a world."""
        return await self.world_requests.delete(params, principal)
