package shop;

import com.azure.cosmos.models.PartitionKey;
import com.azure.spring.data.cosmos.exception.CosmosAccessException;
import java.util.List;
import java.util.Map;
import org.springframework.http.HttpStatus;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

@RestController
public class OrderController {
    private final Orders orders;

    OrderController(Orders orders) {
        this.orders = orders;
    }

    record NewOrder(String id, String customer, double total) {}

    @GetMapping("/health")
    Map<String, String> health() {
        return Map.of("status", "up");
    }

    @PostMapping("/orders")
    @ResponseStatus(HttpStatus.CREATED)
    Order create(@RequestBody NewOrder order) {
        // Without an etag the repository would upsert.
        if (orders.findById(order.id(), new PartitionKey(order.customer())).isPresent()) {
            throw new ResponseStatusException(HttpStatus.CONFLICT, "the order exists");
        }
        return orders.save(Order.open(order.id(), order.customer(), order.total()));
    }

    @GetMapping("/customers/{customer}/orders/{id}")
    Order read(@PathVariable("customer") String customer, @PathVariable("id") String id) {
        // Id and partition key: a point read, the cheapest request.
        return orders.findById(id, new PartitionKey(customer))
                .orElseThrow(() -> new ResponseStatusException(HttpStatus.NOT_FOUND, "no such order"));
    }

    @GetMapping("/customers/{customer}/orders")
    List<Order> latest(@PathVariable("customer") String customer) {
        return orders.latest(customer);
    }

    @PostMapping("/customers/{customer}/orders/{id}/ship")
    Order ship(@PathVariable("customer") String customer, @PathVariable("id") String id) {
        var order = read(customer, id);
        order.status = "shipped";
        return orders.save(order);
    }

    /** The status of an error is the service's, such as 412 for a stale etag. */
    @ExceptionHandler
    ResponseEntity<String> refused(CosmosAccessException error) {
        return ResponseEntity.status(HttpStatusCode.valueOf(error.getCosmosException().getStatusCode()))
                .body(error.getMessage());
    }
}
