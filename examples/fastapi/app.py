"""Orders of customers. Start it with `python app.py`."""

import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uvicorn
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel


class Order(BaseModel):
    id: str
    customer: str
    total: float


@asynccontextmanager
async def lifespan(app):
    # One client for the whole process: it keeps connections and the partition map.
    async with CosmosClient(os.environ["COSMOS_ENDPOINT"], os.environ["COSMOS_KEY"]) as client:
        database = await client.create_database_if_not_exists("shop")
        app.state.orders = await database.create_container_if_not_exists("orders", PartitionKey("/customer"))
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health():
    return {"status": "up"}


@app.post("/orders", status_code=201)
async def create(order: Order):
    item = order.model_dump() | {"status": "open", "at": datetime.now(UTC).isoformat()}
    try:
        return await app.state.orders.create_item(item)
    except exceptions.CosmosResourceExistsError:
        raise HTTPException(409, "the order exists") from None


@app.get("/customers/{customer}/orders/{order_id}")
async def read(customer: str, order_id: str):
    try:
        # Id and partition key: a point read, the cheapest request.
        return await app.state.orders.read_item(order_id, partition_key=customer)
    except exceptions.CosmosResourceNotFoundError:
        raise HTTPException(404, "no such order") from None


@app.get("/customers/{customer}/orders")
async def latest(customer: str):
    query = app.state.orders.query_items(
        "SELECT * FROM c WHERE c.customer = @customer ORDER BY c.at DESC OFFSET 0 LIMIT 20",
        parameters=[{"name": "@customer", "value": customer}],
        partition_key=customer,
    )
    return [item async for item in query]


@app.post("/customers/{customer}/orders/{order_id}/ship")
async def ship(customer: str, order_id: str):
    order = await read(customer, order_id)
    try:
        # The etag makes sure that nobody has changed the order since it was read.
        return await app.state.orders.replace_item(
            order_id,
            order | {"status": "shipped"},
            etag=order["_etag"],
            match_condition=MatchConditions.IfNotModified,
        )
    except exceptions.CosmosAccessConditionFailedError:
        raise HTTPException(412, "changed at the same time") from None


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="warning")
